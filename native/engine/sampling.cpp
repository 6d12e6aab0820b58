// The sampler chain behind sampling.h.
#include "engine/sampling.h"

#include "engine/decoder.h"
#include "engine/logit_watch.h"
#include "engine/replay.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace headrace {

namespace {

constexpr float FORBIDDEN = -std::numeric_limits<float>::infinity();

// Drops what a sampler before it has forbidden: those after it take the logarithm of every probability.
llama_sampler * make_dropper() {
    static llama_sampler_i calls = [] {
        llama_sampler_i made{};
        made.name  = [](const llama_sampler *) { return "drop"; };
        made.apply = [](llama_sampler *, llama_token_data_array * array) {
            const auto end = std::remove_if(array->data, array->data + array->size,
                                            [](const auto & item) { return item.logit == FORBIDDEN; });
            array->size    = static_cast<size_t>(end - array->data);
        };
        return made;
    }();
    return llama_sampler_init(&calls, nullptr);
}

float single(double value) {
    return static_cast<float>(value);
}

int32_t whole(int64_t value) {
    return static_cast<int32_t>(value);
}

bool penalises(const GenerationOptions & options) {
    return options.penalty_window > 0 &&
           (options.repeat_penalty != 1 || options.frequency_penalty != 0 || options.presence_penalty != 0);
}

bool dries(const GenerationOptions & options) {
    return options.dry_multiplier > 0 && options.dry_penalty_last_n > 0;
}

std::span<const llama_token> suppressed(const Vocabulary & vocabulary) {
    int32_t count = 0;
    return vocabulary.llama() == nullptr
               ? std::span<const llama_token>()
               : std::span(llama_vocab_get_suppress_tokens(vocabulary.llama(), &count),
                           static_cast<size_t>(count));
}

llama_sampler * make_dry(const GenerationOptions & options, const Vocabulary & vocabulary) {
    if (vocabulary.llama() == nullptr) {
        throw Error(ErrorCode::unsupported_operation, "DRY needs a model's vocabulary");
    }
    std::vector<const char *> breakers;
    for (const std::string & breaker : options.dry_sequence_breakers) {
        breakers.push_back(breaker.c_str());
    }
    return llama_sampler_init_dry(vocabulary.llama(), single(options.dry_multiplier),
                                  single(options.dry_base), whole(options.dry_allowed_length),
                                  whole(options.dry_penalty_last_n), breakers.data(), breakers.size());
}

// Draws as often as was drawn for so many tokens.
llama_sampler * skip_draws(llama_sampler * draw, size_t tokens) {
    llama_token_data only{0, 0.0f, 0.0f};
    for (size_t i = 0; i < tokens; i++) {
        llama_token_data_array array = {&only, 1, -1, false};
        llama_sampler_apply(draw, &array);
    }
    return draw;
}

// Of a sampler whose draws nobody can count: after so many tokens it does not begin with the same ones again.
uint32_t seed_after(int64_t seed, size_t tokens) {
    constexpr uint64_t none = 0xFFFFFFFF; // llama.cpp takes it for "draw one yourself"
    return static_cast<uint32_t>((static_cast<uint64_t>(seed) + tokens * 0x9E3779B9) % none);
}

// replayed: tokens that were drawn before.
llama_sampler_ptr make_chain(const GenerationOptions & options, const Vocabulary & vocabulary,
                             size_t replayed) {
    llama_sampler_ptr chain(llama_sampler_chain_init(llama_sampler_chain_default_params()));
    const auto        add   = [&](llama_sampler * sampler) { llama_sampler_chain_add(chain.get(), sampler); };
    const int32_t     count = whole(static_cast<int64_t>(vocabulary.size()));
    const auto        seed  = static_cast<uint32_t>(options.seed);
    const uint32_t    other = seed_after(options.seed, replayed);

    std::vector<llama_logit_bias> biases;
    for (const auto & [token, bias] : options.logit_bias) {
        biases.push_back({token, single(bias)});
    }
    for (const llama_token token : suppressed(vocabulary)) {
        biases.push_back({token, FORBIDDEN});
    }
    if (!biases.empty()) {
        add(llama_sampler_init_logit_bias(count, whole(static_cast<int64_t>(biases.size())), biases.data()));
        add(make_dropper());
    }
    if (penalises(options)) {
        add(llama_sampler_init_penalties(count, whole(options.penalty_window), single(options.repeat_penalty),
                                         single(options.frequency_penalty),
                                         single(options.presence_penalty)));
    }
    if (dries(options)) {
        add(make_dry(options, vocabulary));
    }
    if (options.temperature == 0) {
        add(llama_sampler_init_greedy());
        return chain;
    }
    if (options.mirostat > 0) {
        add(llama_sampler_init_temp(single(options.temperature)));
        add(options.mirostat == 1 ? llama_sampler_init_mirostat(count, other, single(options.mirostat_tau),
                                                                single(options.mirostat_eta), 100)
                                  : llama_sampler_init_mirostat_v2(other, single(options.mirostat_tau),
                                                                   single(options.mirostat_eta)));
        return chain;
    }
    if (options.top_n_sigma > 0) {
        add(llama_sampler_init_top_n_sigma(single(options.top_n_sigma)));
        add(make_dropper());
    }
    if (options.top_k > 0) {
        add(llama_sampler_init_top_k(whole(options.top_k)));
    }
    if (options.typical_p < 1) {
        add(llama_sampler_init_typical(single(options.typical_p), 1));
    }
    if (options.top_p < 1) {
        add(llama_sampler_init_top_p(single(options.top_p), 1));
    }
    if (options.min_p > 0) {
        add(llama_sampler_init_min_p(single(options.min_p), 1));
    }
    if (options.xtc_probability > 0) {
        add(llama_sampler_init_xtc(single(options.xtc_probability), single(options.xtc_threshold), 1, other));
    }
    add(llama_sampler_init_temp_ext(single(options.temperature), single(options.dynatemp_range),
                                    single(options.dynatemp_exponent)));
    add(skip_draws(llama_sampler_init_dist(seed), replayed));
    return chain;
}

// How many of the highest logits decide: the k of top-k, and one more for each token that a penalty may push
// down from above them. 0 when any token may be pushed up, or all of them are looked at.
size_t enough_candidates(const GenerationOptions & options, const Vocabulary & vocabulary) {
    const bool    greedy = options.temperature == 0;
    const int64_t wanted = greedy ? 1 : options.top_k;
    const bool    all    = !greedy && (options.mirostat > 0 || options.top_n_sigma > 0);
    const bool    lifts  = !options.logit_bias.empty() || !suppressed(vocabulary).empty() ||
                           options.repeat_penalty < 1 || options.frequency_penalty < 0 ||
                           options.presence_penalty < 0;
    if (wanted == 0 || all || lifts) {
        return 0;
    }
    return static_cast<size_t>(wanted + (penalises(options) ? options.penalty_window : 0) +
                               (dries(options) ? options.dry_penalty_last_n : 0));
}

} // namespace

void check_sampling(const Request & request, const Vocabulary & vocabulary) {
    const GenerationOptions & options = request.options;
    const auto                refuse  = [](const std::string & option, const std::string & why) {
        throw Error(ErrorCode::invalid_option, option + " " + why, {{"option", option}});
    };
    for (const auto & [token, bias] : options.logit_bias) {
        if (static_cast<size_t>(token) >= vocabulary.size()) {
            refuse("logitBias", "names the token " + std::to_string(token) + ", the vocabulary ends with " +
                                    std::to_string(vocabulary.size() - 1));
        }
    }
    constexpr size_t longest = 40; // llama.cpp cuts what is longer
    for (const std::string & breaker : options.dry_sequence_breakers) {
        if (breaker.empty() || breaker.size() > longest || breaker.find('\0') != breaker.npos) {
            refuse("drySequenceBreakers", "must hold strings of 1 to 40 bytes");
        }
    }
    if (options.top_logprobs > 0 && !options.logprobs) {
        refuse("topLogprobs", "needs logprobs");
    }
    if (!request.grammar.text.empty()) {
        GrammarMatcher(request.grammar, vocabulary.llama(), {}, {});
    }
}

Sampler::Sampler(const Request & request, const Vocabulary & vocabulary)
    : vocabulary_(&vocabulary), chain_(make_chain(request.options, vocabulary, replayed(request).size())),
      watch_(request.health_watch), wants_logprobs_(request.options.logprobs),
      top_logprobs_(static_cast<size_t>(request.options.top_logprobs)),
      enough_(enough_candidates(request.options, vocabulary)) {
    const GenerationOptions & options = request.options;
    only_likeliest_                   = options.temperature == 0 && llama_sampler_chain_n(chain_.get()) == 1;
    if (!request.grammar.text.empty()) {
        if (vocabulary.llama() == nullptr) {
            throw Error(ErrorCode::unsupported_operation, "a grammar needs a model's vocabulary");
        }
        grammar_.emplace(request.grammar, vocabulary.llama(), request.stop_tokens, request.preserved_tokens);
    }
    const auto back = static_cast<size_t>(std::max(penalises(options) ? options.penalty_window : 0,
                                                   dries(options) ? options.dry_penalty_last_n : 0));
    const std::span<const Token> prompt = input_of(request);
    for (const Token token : prompt.last(std::min(prompt.size(), back))) {
        llama_sampler_accept(chain_.get(), token);
    }
    for (const Token token : replayed(request)) {
        take_note(token);
    }
}

void Sampler::gather_all(std::span<const float> logits) {
    // With the watch off, what is no number counts as forbidden: sorting needs an order.
    constexpr float largest = std::numeric_limits<float>::max();
    candidates_.resize(logits.size());
    size_t count = 0;
    for (size_t i = 0; i < logits.size(); i++) {
        candidates_[count] = {static_cast<Token>(i), std::min(logits[i], largest), 0.0f};
        count += logits[i] > FORBIDDEN ? 1 : 0;
    }
    candidates_.resize(count);
}

// At least the `count` highest logits; all for 0. They are not below the count-th highest block maximum: only
// the blocks above it are looked into.
void Sampler::gather(std::span<const float> logits, size_t count) {
    if (count == 0 || count > maxima_.size()) {
        return gather_all(logits);
    }
    order_           = maxima_;
    const auto place = order_.begin() + static_cast<ptrdiff_t>(count - 1);
    std::nth_element(order_.begin(), place, order_.end(), std::greater<>());
    const float least = *place;
    if (least == FORBIDDEN) {
        return gather_all(logits);
    }
    candidates_.clear();
    for (size_t block = 0; block < maxima_.size(); block++) {
        if (maxima_[block] < least) {
            continue;
        }
        const size_t end = std::min(logits.size(), (block + 1) * SCAN_BLOCK);
        for (size_t i = block * SCAN_BLOCK; i < end; i++) {
            if (logits[i] >= least) {
                candidates_.push_back({static_cast<Token>(i), logits[i], 0.0f});
            }
        }
    }
}

Token Sampler::run_chain() {
    llama_token_data_array array = {candidates_.data(), candidates_.size(), -1, false};
    llama_sampler_apply(chain_.get(), &array);
    if (array.selected < 0 || static_cast<size_t>(array.selected) >= array.size) {
        throw Error(ErrorCode::internal, "the sampler chose no token");
    }
    return array.data[array.selected].id;
}

Token Sampler::choose(std::span<const float> logits, const LogitScan & scan) {
    Token token = scan.likeliest;
    if (!only_likeliest_ || token < 0) {
        gather(logits, enough_);
        token = candidates_.empty() ? 0 : run_chain();
    }
    if (!grammar_ || grammar_->allows(token)) {
        return token;
    }
    // Asking the grammar about every token costs more than all samplers together: first about the likeliest,
    // which are all that counts if enough of them are allowed.
    constexpr size_t likeliest = 256;
    candidates_.clear();
    if (enough_ > 0) {
        gather(logits, std::max(enough_, std::min(likeliest, maxima_.size())));
        grammar_->restrict(candidates_);
    }
    if (candidates_.empty() || candidates_.size() < enough_) {
        gather_all(logits);
        grammar_->restrict(candidates_);
    }
    if (candidates_.empty()) {
        throw Error(ErrorCode::grammar_invalid,
                    "no token of the model's vocabulary continues the answer as its grammar wants");
    }
    return run_chain();
}

void Sampler::take_note(Token token) {
    if (grammar_) {
        grammar_->accept(token);
    }
    llama_sampler_accept(chain_.get(), token);
}

Token Sampler::sample(std::span<const float> logits) {
    const LogitScan scan = scan_logits(logits, &maxima_);
    if (const auto fault = judge(scan, watch_)) {
        throw numeric_fault(*fault, scan, logits);
    }
    const Token token = choose(logits, scan);
    take_note(token);
    if (wants_logprobs_) {
        logprobs_ = compute_logprobs(logits, token, top_logprobs_, *vocabulary_);
    }
    return token;
}

} // namespace headrace
