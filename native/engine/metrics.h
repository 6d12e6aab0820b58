// What a finished request reports about itself: usage and timings.
//
// Computed once, at the end, from RequestTimes; nothing here is touched while tokens are made.
#pragma once

#include "engine/gpu.h"
#include "engine/prefix_store.h"
#include "engine/request.h"

namespace headrace {

// Where the part of a prompt came from that needed no computing.
enum class CacheSource { none, live, prefix, disk };

constexpr const char * CACHE_SOURCE_NAMES[] = {"none", "live", "prefix", "disk"};

struct CacheUse {
    CacheSource source = CacheSource::none;
    size_t      tokens = 0;
};

struct Usage {
    size_t input_tokens  = 0;
    size_t output_tokens = 0;
    size_t cached_tokens = 0; // of the input, those whose computation was skipped
};

// Times and rates are of this engine alone, also where it goes on with another one's answer.
struct RequestStats {
    double queue_ms                  = 0; // submitted → admitted to a slot
    double prefill_ms                = 0; // admitted → first token
    double ttft_ms                   = 0; // submitted → first token
    double total_ms                  = 0; // submitted → finished
    double prefill_tokens_per_second = 0;
    double decode_tokens_per_second  = 0;
    double itl_p50_ms                = 0; // inter-token latency
    double itl_p95_ms                = 0;

    CacheUse cache;
    size_t   drafted         = 0; // tokens guessed by speculative decoding
    size_t   accepted_drafts = 0; // of these, right
    size_t   slid            = 0; // tokens that slid out of the context
    size_t   replayed        = 0; // tokens of the answer that another engine had generated before
};

// What an engine has done since it was loaded.
struct EngineMetrics {
    size_t   accepted  = 0; // requests
    size_t   finished  = 0; // of these, with a result
    size_t   cancelled = 0;
    size_t   failed    = 0;
    size_t   waiting   = 0; // now
    size_t   running   = 0; // now
    uint64_t steps     = 0; // forward passes
    double   busy_ms   = 0; // spent in them

    uint64_t prefill_tokens  = 0; // computed
    uint64_t decode_tokens   = 0; // computed and sampled from
    uint64_t cached_tokens   = 0; // of prompts, not computed
    uint64_t drafted_tokens  = 0;
    uint64_t accepted_drafts = 0;
    uint64_t slid_tokens     = 0; // taken out of contexts that were full

    std::optional<GpuCounters> gpu; // where a GPU computes

    PrefixStoreStats snapshots;
};

struct EmbedStats {
    double queue_ms          = 0; // submitted → first forward pass
    double total_ms          = 0; // submitted → finished
    double tokens_per_second = 0; // input tokens, from the first forward pass on
};

// usage: of what was done between these times.
RequestStats measure(const RequestTimes & times, const Usage & usage, double finished);

} // namespace headrace
