// Log probabilities of tokens in the model's own distribution.
//
// Log-softmax of the raw logits, before any penalty, bias, temperature or grammar: what the model thought, not
// how the token was drawn. Asked for by sampling.cpp, carried by event.h.
#pragma once

#include "engine/request.h"

#include <span>
#include <string>
#include <vector>

namespace headrace {

class Vocabulary;

struct TokenProbability {
    Token       token = 0;
    std::string text;        // the token's bytes; alone they need not be whole UTF-8 characters
    double      logprob = 0; // natural logarithm
};

struct TokenLogprobs {
    TokenProbability              chosen;
    std::vector<TokenProbability> top; // the likeliest tokens, likeliest first; may hold the chosen one
};

// top: how many of the likeliest tokens to tell.
TokenLogprobs compute_logprobs(std::span<const float> logits, Token chosen, size_t top,
                               const Vocabulary & vocabulary);

} // namespace headrace
