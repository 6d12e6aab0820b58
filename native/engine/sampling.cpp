// The sampler chain behind sampling.h.
#include "engine/sampling.h"

#include "engine/error.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace headrace {

constexpr int32_t PENALTY_WINDOW = 64; // tokens looked back on, llama.cpp's own default

static llama_sampler_ptr make_chain(const GenerationOptions & options, size_t vocabulary_size) {
    llama_sampler_ptr chain(llama_sampler_chain_init(llama_sampler_chain_default_params()));
    const auto        add = [&](llama_sampler * sampler) { llama_sampler_chain_add(chain.get(), sampler); };
    if (options.repeat_penalty != 1 || options.frequency_penalty != 0 || options.presence_penalty != 0) {
        add(llama_sampler_init_penalties(
            static_cast<int32_t>(vocabulary_size), PENALTY_WINDOW, static_cast<float>(options.repeat_penalty),
            static_cast<float>(options.frequency_penalty), static_cast<float>(options.presence_penalty)));
    }
    if (options.temperature == 0) {
        add(llama_sampler_init_greedy());
        return chain;
    }
    if (options.top_k > 0) {
        add(llama_sampler_init_top_k(static_cast<int32_t>(options.top_k)));
    }
    if (options.top_p < 1) {
        add(llama_sampler_init_top_p(static_cast<float>(options.top_p), 1));
    }
    if (options.min_p > 0) {
        add(llama_sampler_init_min_p(static_cast<float>(options.min_p), 1));
    }
    add(llama_sampler_init_temp(static_cast<float>(options.temperature)));
    add(llama_sampler_init_dist(static_cast<uint32_t>(options.seed)));
    return chain;
}

Sampler::Sampler(const GenerationOptions & options, size_t vocabulary_size, std::span<const Token> prompt)
    : chain_(make_chain(options, vocabulary_size)) {
    for (const Token token : prompt.last(std::min<size_t>(prompt.size(), PENALTY_WINDOW))) {
        llama_sampler_accept(chain_.get(), token);
    }
}

// -inf is a way to forbid a token; NaN, or a likeliest token without a finite logit, is a broken computation.
static void check_numbers(std::span<const float> logits) {
    size_t not_numbers = 0;
    float  largest     = -std::numeric_limits<float>::infinity();
    for (const float logit : logits) {
        not_numbers += std::isnan(logit) ? 1 : 0;
        largest = std::max(largest, logit);
    }
    if (not_numbers > 0 || !std::isfinite(largest)) {
        throw Error(ErrorCode::numeric_fault,
                    "the model computed nonsense: " + std::to_string(not_numbers) + " of " +
                        std::to_string(logits.size()) + " logits are not numbers",
                    {{"notNumbers", static_cast<double>(not_numbers)},
                     {"logits", static_cast<double>(logits.size())}});
    }
}

Token Sampler::sample(std::span<const float> logits) {
    check_numbers(logits);
    candidates_.resize(logits.size());
    for (size_t i = 0; i < logits.size(); i++) {
        candidates_[i] = {static_cast<Token>(i), logits[i], 0.0f};
    }
    llama_token_data_array array = {candidates_.data(), candidates_.size(), -1, false};
    llama_sampler_apply(chain_.get(), &array);
    if (array.selected < 0 || static_cast<size_t>(array.selected) >= array.size) {
        throw Error(ErrorCode::internal, "the sampler chose no token");
    }
    const Token token = array.data[array.selected].id;
    llama_sampler_accept(chain_.get(), token);
    return token;
}

} // namespace headrace
