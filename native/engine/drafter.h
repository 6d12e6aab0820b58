// Guesses of the tokens to come, for speculative decoding, as a small interface.
//
// Implemented by ngram_drafter.h (from the text so far) and model_drafter.h (by a small model). The
// scheduler verifies every guess: a bad one costs time, never correctness.
#pragma once

#include "engine/request.h"

#include <span>
#include <vector>

namespace headrace {

class Drafter {
  public:
    virtual ~Drafter() = default;

    // A slot begins with this prompt, or ends.
    virtual void begin(size_t slot, std::span<const Token> prompt) = 0;
    virtual void end(size_t slot)                                  = 0;

    // A token was sampled in this slot.
    virtual void append(size_t slot, Token token) = 0;

    // Up to at_most guesses of what follows the slot's tokens, written to `guesses`. None when guessing
    // would not pay.
    virtual void draft(size_t slot, size_t at_most, std::vector<Token> & guesses) = 0;

    // A pass over `decoding` tokens of streams and as many guesses took so long.
    virtual void observe_pass(size_t decoding, size_t drafted, double ms) = 0;

    // Of the slot's guesses, so many were right.
    virtual void observe_guesses(size_t slot, size_t drafted, size_t accepted) = 0;
};

} // namespace headrace
