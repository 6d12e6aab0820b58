// A slot: one sequence of the context, and the request that has it.
//
// idle → prefill (the prompt is being computed) → decode (tokens are being made) → idle.
// Moved by scheduler.cpp, read by batch_planner.cpp. What an idle slot's sequence still holds is known to
// kv_cache.h, not here.
#pragma once

#include "engine/event.h"
#include "engine/kv_cache.h"
#include "engine/request.h"
#include "engine/sampling.h"
#include "engine/speculation.h"
#include "engine/text_stream.h"

#include <optional>

namespace headrace {

enum class SlotPhase { idle, prefill, decode };

struct Slot {
    SlotPhase          phase = SlotPhase::idle;
    Request            request;
    KvCache::Lease     lease;
    size_t             computed = 0;             // tokens of this sequence in the KV cache: the next position
    size_t             stop_at  = 0;             // a prefill pass ends here, for a checkpoint; 0: nowhere
    Token              last     = 0;             // sampled, not yet computed
    std::vector<Token> draft;                    // guesses of what follows `last`, to be verified in one pass
    uint64_t           planned_last = 0;         // the step that last computed something for this slot
    std::optional<SpeculationGovernor> governor; // where there is a drafter
    size_t                             drafted         = 0;
    size_t                             accepted_drafts = 0;
    std::optional<Sampler>             sampler;
    std::optional<TextStream>          text;
    std::vector<Token>                 output;        // all tokens sampled so far
    size_t                             announced = 0; // of those, how many a tokens event has carried
    std::string                        shown;         // all text announced so far
};

} // namespace headrace
