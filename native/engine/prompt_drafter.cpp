// The joints behind prompt_drafter.h.
#include "engine/prompt_drafter.h"

#include <algorithm>
#include <utility>

namespace headrace {

void PromptDrafter::begin(size_t slot, std::span<const Token> prompt) {
    Sequence & sequence = sequences_.insert_or_assign(slot, Sequence(max_draft_)).first->second;
    for (Token token : prompt) {
        sequence.text.append(token);
    }
}

void PromptDrafter::append(size_t slot, Token token) {
    if (const auto found = sequences_.find(slot); found != sequences_.end()) {
        found->second.text.append(token);
    }
}

void PromptDrafter::draft(size_t slot, size_t at_most, std::vector<Token> & guesses) {
    pass_ms_ = 0;
    if (const auto found = sequences_.find(slot); found != sequences_.end()) {
        Sequence &   sequence = found->second;
        const size_t count    = std::min(at_most, sequence.governor.draft_limit());
        const auto   drafted  = sequence.text.draft(count);
        sequence.in_pass      = true;
        guesses.assign(drafted.begin(), drafted.end());
    }
}

void PromptDrafter::observe_pass(size_t, size_t drafted, double ms) {
    pass_ms_ = ms;
    for (auto & [slot, sequence] : sequences_) {
        // Beside the guesses of others, the price of a plain step cannot be told.
        if (std::exchange(sequence.in_pass, false) && drafted == 0) {
            sequence.governor.observe(0, 0, ms);
        }
    }
}

void PromptDrafter::observe_guesses(size_t slot, size_t drafted, size_t accepted) {
    if (const auto found = sequences_.find(slot); found != sequences_.end() && pass_ms_ > 0) {
        found->second.governor.observe(drafted, accepted, pass_ms_);
    }
}

} // namespace headrace
