// Guesses of the tokens to come, for speculative decoding, as a small interface.
//
// Implemented by prompt_drafter.h (from the text so far) and model_drafter.h (by a small model). How many
// guesses pay is the business of speculation.h; the scheduler has every one verified: a wrong guess costs
// time, never correctness.
#pragma once

#include "engine/memory_use.h"
#include "engine/request.h"

#include <span>
#include <vector>

namespace headrace {

class Drafter {
  public:
    virtual ~Drafter() = default;

    // A slot's sequence begins with this prompt, or has ended.
    virtual void begin(size_t slot, std::span<const Token> prompt) = 0;
    virtual void end(size_t slot)                                  = 0;

    // A token was sampled in this slot.
    virtual void append(size_t slot, Token token) = 0;

    // Writes up to at_most guesses of what follows the slot's tokens into `guesses`, which is empty. False when
    // it has used the time to catch up with the tokens instead: that is not the price of guessing.
    virtual bool draft(size_t slot, size_t at_most, std::vector<Token> & guesses) = 0;

    // What it holds of models and contexts of its own.
    virtual MemoryUse memory() const { return {}; }
};

} // namespace headrace
