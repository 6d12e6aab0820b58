// Drafts for speculative decoding out of the sequence itself: what followed these last few tokens before?
//
// Prompt lookup decoding (A. Saxena, 2023, github.com/apoorvumang/prompt-lookup-decoding): summaries, code edits
// and answers about a text repeat it at length. Whether a draft is worth its cost is not decided here but in
// speculation.h; whether it is right, by the model.
#pragma once

#include "engine/request.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace headrace {

class NgramDrafter {
  public:
    static constexpr size_t SHORTEST = 2; // tokens that must have occurred before, at least
    static constexpr size_t LONGEST  = 4; // and those looked for first

    // history: tokens that are remembered, at least; twice as many at most. Some 30 bytes each.
    explicit NgramDrafter(size_t history = 32768);

    // The next token of the sequence, of the prompt or of the answer. Constant time, taken over many.
    void append(Token token);

    // At most `count` tokens that followed the latest earlier occurrence of the last LONGEST tokens, or of fewer,
    // down to SHORTEST. Empty if there is none. Only tokens that were appended; valid until the next append.
    std::span<const Token> draft(size_t count) const;

  private:
    static constexpr size_t LENGTHS = LONGEST - SHORTEST + 1;

    void   index_last();
    void   rebuild(size_t slots);
    size_t find_slot(size_t length, size_t end) const;
    bool   same(size_t length, size_t end, size_t other_end) const;

    size_t             history_;
    std::vector<Token> tokens_;

    // By the length of an n-gram, less SHORTEST: hash → where its latest occurrence ends (the index of the token
    // after it; 0: none), and where the sequence's last n-gram had ended before. A slot has room for one: what
    // collides is forgotten, and found out by comparing.
    std::array<std::vector<uint32_t>, LENGTHS> latest_;
    std::array<size_t, LENGTHS>                match_{};
};

} // namespace headrace
