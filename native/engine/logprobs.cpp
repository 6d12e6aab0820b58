// The log-softmax behind logprobs.h.
#include "engine/logprobs.h"

#include "engine/decoder.h"
#include "engine/logit_watch.h"

#include <algorithm>
#include <cmath>

namespace headrace {

TokenLogprobs compute_logprobs(std::span<const float> logits, Token chosen, size_t top,
                               const Vocabulary & vocabulary) {
    const float largest = *std::max_element(logits.begin(), logits.end());
    double      sum     = 0;
    for (const float logit : logits) {
        sum += static_cast<double>(std::exp(logit - largest));
    }
    const double normaliser = static_cast<double>(largest) + std::log(sum);
    const auto   describe   = [&](Token token) {
        return TokenProbability{token, vocabulary.piece(token),
                                static_cast<double>(logits[static_cast<size_t>(token)]) - normaliser};
    };
    TokenLogprobs result{describe(chosen), {}};
    for (const auto & [token, logit] : highest_logits(logits, top)) {
        result.top.push_back(describe(token));
    }
    return result;
}

} // namespace headrace
