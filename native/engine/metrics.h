// What a finished request reports about itself: usage and timings.
//
// Computed once, at the end, from RequestTimes; nothing here is touched while tokens are made.
#pragma once

#include "engine/request.h"

namespace headrace {

struct Usage {
    size_t input_tokens  = 0;
    size_t output_tokens = 0;
    size_t cached_tokens = 0; // of the input, those whose computation was skipped
};

struct RequestStats {
    double queue_ms                  = 0; // submitted → admitted to a slot
    double prefill_ms                = 0; // admitted → first token
    double ttft_ms                   = 0; // submitted → first token
    double total_ms                  = 0; // submitted → finished
    double prefill_tokens_per_second = 0;
    double decode_tokens_per_second  = 0;
    double itl_p50_ms                = 0; // inter-token latency
    double itl_p95_ms                = 0;
};

struct EmbedStats {
    double queue_ms          = 0; // submitted → first forward pass
    double total_ms          = 0; // submitted → finished
    double tokens_per_second = 0; // input tokens, from the first forward pass on
};

RequestStats measure(const RequestTimes & times, const Usage & usage, double finished);

} // namespace headrace
