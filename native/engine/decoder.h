// What the scheduler and the KV cache manager need of a model, as two small interfaces.
//
// Implemented by llama_decoder.h and model.h for real models, and by tests/fake_decoder.h for host tests.
#pragma once

#include "engine/batch_planner.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

struct llama_vocab;

namespace headrace {

// The state of one sequence in the KV cache, copied out of it; opaque.
using SequenceState = std::vector<uint8_t>;

class Decoder {
  public:
    virtual ~Decoder() = default;

    // Runs one forward pass over the plan's contributions. Throws Error when it cannot be done.
    virtual void decode(const BatchPlan & plan) = 0;

    // The logits of a contribution that wanted them, one per vocabulary entry; valid until the next decode.
    virtual std::span<const float> logits(size_t contribution) = 0;

    // Tokens that fit into one slot's context.
    virtual size_t context_size() const = 0;

    // Makes these LoRA adapters, and no others, apply to the passes that follow.
    virtual void use_adapters(std::span<const AdapterUse> adapters) = 0;

    // --- the KV cache; a slot's sequence has the slot's index ---

    // Whether the end of a sequence can be cut off. Where it cannot (recurrent and hybrid models, sliding
    // windows without the rest), a sequence only ever grows, or is replaced by a saved state.
    virtual bool can_trim() const = 0;

    // Whether this sequence can be cut at this length now, so that what is left is all that its next token
    // looks at. Not where a window has moved on and the tokens before it are gone.
    virtual bool can_trim_to(size_t slot, size_t length) const = 0;

    // Whether a saved state, too, can be cut once it is restored. Of sliding-window layers it holds only the
    // window before its end.
    virtual bool can_trim_saved() const = 0;

    // Whether tokens can be taken out of the middle of a sequence.
    virtual bool can_shift() const = 0;

    // Drops what the sequence holds from this position on. Only 0, where it cannot be trimmed.
    virtual void trim(size_t slot, size_t length) = 0;

    // Takes out the tokens [keep, keep + count); those behind them move up.
    virtual void shift(size_t slot, size_t keep, size_t count) = 0;

    // Bytes that save() gives for the sequence as it is.
    virtual size_t state_bytes(size_t slot) const = 0;

    virtual SequenceState save(size_t slot) const = 0;

    // Replaces the sequence by a saved state. False when that cannot be done; it is empty then.
    virtual bool restore(size_t slot, std::span<const uint8_t> state) = 0;
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

    // The same vocabulary for llama.cpp's grammars and DRY; null where there is none.
    virtual const llama_vocab * llama() const { return nullptr; }
};

} // namespace headrace
