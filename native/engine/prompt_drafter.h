// The Drafter that needs no second model: n-grams of each slot's own text, as often as they pay.
//
// Joins ngram_drafter.h and speculation.h for the scheduler; decides nothing itself.
#pragma once

#include "engine/drafter.h"
#include "engine/ngram_drafter.h"
#include "engine/speculation.h"

#include <map>

namespace headrace {

class PromptDrafter : public Drafter {
  public:
    // max_draft: guesses per slot and pass, at most.
    explicit PromptDrafter(size_t max_draft) : max_draft_(max_draft) {}

    void begin(size_t slot, std::span<const Token> prompt) override;
    void end(size_t slot) override { sequences_.erase(slot); }
    void append(size_t slot, Token token) override;
    void draft(size_t slot, size_t at_most, std::vector<Token> & guesses) override;
    void observe_pass(size_t decoding, size_t drafted, double ms) override;
    void observe_guesses(size_t slot, size_t drafted, size_t accepted) override;

  private:
    struct Sequence {
        explicit Sequence(size_t max_draft) : governor(max_draft) {}

        NgramDrafter        text;
        SpeculationGovernor governor;
        bool                in_pass = false; // asked for guesses since the last pass
    };

    size_t                     max_draft_;
    double                     pass_ms_ = 0; // of the pass whose guesses are being told; 0: not known
    std::map<size_t, Sequence> sequences_;   // by slot
};

} // namespace headrace
