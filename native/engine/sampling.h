// Logits in, token out: llama.cpp's samplers in the order most users know.
//
// penalties → top-k → top-p → min-p → temperature → draw; with temperature 0: penalties → likeliest.
#pragma once

#include "engine/request.h"

#include <llama-cpp.h>

#include <span>
#include <vector>

namespace headrace {

class Sampler {
  public:
    // prompt: what the penalties look back on before there is an answer.
    // The options' seed is not negative: whoever wants a new one each time has drawn it already.
    Sampler(const GenerationOptions & options, size_t vocabulary_size, std::span<const Token> prompt);

    // Chooses a token and takes note of it for the penalties. Throws Error (numeric_fault) when the logits
    // cannot be those of a working model.
    Token sample(std::span<const float> logits);

  private:
    llama_sampler_ptr             chain_;
    std::vector<llama_token_data> candidates_; // reused
};

} // namespace headrace
