// A slot: one sequence of the context, and the request that has it.
//
// idle → prefill (the prompt is being computed) → decode (tokens are being made) → idle.
// Moved by scheduler.cpp, read by batch_planner.cpp.
#pragma once

#include "engine/event.h"
#include "engine/request.h"
#include "engine/sampling.h"
#include "engine/text_stream.h"

#include <memory>
#include <optional>

namespace headrace {

enum class SlotPhase { idle, prefill, decode };

struct Slot {
    SlotPhase                 phase = SlotPhase::idle;
    Request                   request;
    size_t                    computed = 0; // tokens of this sequence in the KV cache: the next position
    Token                     last     = 0; // sampled, not yet computed
    std::optional<Sampler>    sampler;
    std::optional<TextStream> text;
    std::vector<Token>        output;        // all tokens sampled so far
    size_t                    announced = 0; // of those, how many a tokens event has carried
    std::string               shown;         // all text announced so far

    std::vector<TokenLogprobs> logprobs; // of output, when the request asks for them
};

} // namespace headrace
