// A Drafter that guesses from the slot's own text; ngram_drafter.h says how.
#pragma once

#include "engine/drafter.h"
#include "engine/ngram_drafter.h"

#include <optional>

namespace headrace {

class PromptDrafter : public Drafter {
  public:
    explicit PromptDrafter(size_t slots) : slots_(slots) {}

    void begin(size_t slot, std::span<const Token> prompt) override {
        NgramDrafter & drafter = slots_.at(slot).emplace();
        for (const Token token : prompt) {
            drafter.append(token);
        }
    }

    void end(size_t slot) override { slots_.at(slot).reset(); }

    void append(size_t slot, Token token) override { slots_.at(slot)->append(token); }

    bool draft(size_t slot, size_t at_most, std::vector<Token> & guesses) override {
        const auto found = slots_.at(slot)->draft(at_most);
        guesses.assign(found.begin(), found.end());
        return true;
    }

  private:
    std::vector<std::optional<NgramDrafter>> slots_;
};

} // namespace headrace
