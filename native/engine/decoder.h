// What the scheduler needs of a model, as two small interfaces.
//
// Implemented by llama_decoder.h and model.h for real models, and by tests/fake_decoder.h for host tests.
#pragma once

#include "engine/batch_planner.h"

#include <span>
#include <string>

namespace headrace {

class Decoder {
  public:
    virtual ~Decoder() = default;

    // Runs one forward pass over the plan's contributions. Throws Error when it cannot be done.
    virtual void decode(const BatchPlan & plan) = 0;

    // The logits of a contribution that wanted them, one per vocabulary entry; valid until the next decode.
    virtual std::span<const float> logits(size_t contribution) = 0;

    // Drops everything the slot has in the KV cache.
    virtual void clear_slot(size_t slot) = 0;

    // Tokens that fit into one slot's context.
    virtual size_t context_size() const = 0;
};

class Vocabulary {
  public:
    virtual ~Vocabulary() = default;

    // Tokens in the vocabulary: the length of every span of logits.
    virtual size_t size() const = 0;

    // The text of a token, as raw bytes; empty for control tokens.
    virtual std::string piece(Token token) const = 0;

    // The text of a token, that of a control token included.
    virtual std::string special_piece(Token token) const { return piece(token); }

    // Whether the model ends its text with this token.
    virtual bool is_end(Token token) const = 0;
};

} // namespace headrace
