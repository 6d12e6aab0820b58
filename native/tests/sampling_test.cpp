// The sampler over made-up logits: what each option does to the distribution, seeds, and what is refused.
// Grammars and DRY need a real vocabulary: tests/python/test_native_sampling.py.
#include "engine/sampling.h"

#include "engine/error.h"
#include "engine/replay.h"
#include "fake_decoder.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>

using namespace headrace;

namespace {

constexpr float INF   = std::numeric_limits<float>::infinity();
constexpr int   DRAWS = 4000;

// A request whose options leave the model's distribution as it is.
Request plain(double temperature = 1, int64_t seed = 1) {
    Request request;
    request.prompt              = {'p'};
    request.options.temperature = temperature;
    request.options.top_k       = 0;
    request.options.top_p       = 1;
    request.options.min_p       = 0;
    request.options.seed        = seed;
    return request;
}

// Probabilities of the first tokens; all others share next to nothing.
std::vector<float> row(const std::vector<double> & probabilities) {
    std::vector<float> logits(FAKE_VOCABULARY, -20.0f);
    for (size_t i = 0; i < probabilities.size(); i++) {
        logits[i] = static_cast<float>(std::log(probabilities[i]));
    }
    return logits;
}

// Probabilities as drawn: each draw stands alone, whatever a penalty would remember of it.
std::vector<double> shares(const Request & request, const std::vector<float> & logits, bool fresh = false) {
    FakeVocabulary      vocabulary;
    std::vector<double> counts(FAKE_VOCABULARY, 0.0);
    Request             each = request;
    Sampler             sampler(request, vocabulary);
    for (int i = 0; i < DRAWS; i++) {
        if (fresh) {
            each.options.seed = i;
            Sampler once(each, vocabulary);
            counts[static_cast<size_t>(once.sample(logits))] += 1.0 / DRAWS;
        } else {
            counts[static_cast<size_t>(sampler.sample(logits))] += 1.0 / DRAWS;
        }
    }
    return counts;
}

void check_shares(const std::vector<double> & found, const std::vector<double> & expected) {
    for (size_t i = 0; i < expected.size(); i++) {
        INFO("token ", i);
        CHECK(found[i] == doctest::Approx(expected[i]).epsilon(0.001).scale(30)); // ±0.03: four deviations
        if (expected[i] == 0) {
            CHECK(found[i] == 0);
        }
    }
}

std::vector<Token> text(const Request & request, uint32_t logits_seed = 3, size_t vocabulary_size = 257) {
    struct Sized : FakeVocabulary {
        size_t count = 0;
        size_t size() const override { return count; }
    } vocabulary;
    vocabulary.count = vocabulary_size;
    std::mt19937                    random(logits_seed);
    std::normal_distribution<float> draw(0, 3);
    Sampler                         sampler(request, vocabulary);
    std::vector<Token>              tokens;
    std::vector<float>              logits(vocabulary_size);
    for (int i = 0; i < 60; i++) {
        for (float & logit : logits) {
            logit = draw(random);
        }
        tokens.push_back(sampler.sample(logits));
    }
    return tokens;
}

// As `text`, but by a sampler that takes over behind so many tokens of it.
std::vector<Token> rest(Request request, const std::vector<Token> & whole, size_t cut) {
    FakeVocabulary                  vocabulary;
    std::mt19937                    random(3);
    std::normal_distribution<float> draw(0, 3);
    request.options.max_tokens = 1000;
    follow_replay(request, {{whole.begin(), whole.begin() + static_cast<ptrdiff_t>(cut)}, {}, {}, 0},
                  vocabulary, 1000);
    Sampler            sampler(request, vocabulary);
    std::vector<Token> tokens;
    std::vector<float> logits(FAKE_VOCABULARY);
    for (size_t i = 0; i < whole.size(); i++) {
        for (float & logit : logits) {
            logit = draw(random);
        }
        if (i >= cut) {
            tokens.push_back(sampler.sample(logits));
        }
    }
    return tokens;
}

ErrorCode refused(const Request & request) {
    FakeVocabulary vocabulary;
    try {
        check_sampling(request, vocabulary);
    } catch (const Error & error) {
        return error.code;
    }
    return ErrorCode::internal;
}

const std::vector<double> FOUR = {0.4, 0.3, 0.2, 0.1};

} // namespace

TEST_CASE("sampling: without options the model's own distribution is drawn from") {
    check_shares(shares(plain(), row(FOUR)), FOUR);
}

TEST_CASE("sampling: temperature 0 takes the likeliest, of equals the first") {
    check_shares(shares(plain(0), row(FOUR)), {1, 0, 0, 0});
    check_shares(shares(plain(0), row({0.1, 0.4, 0.4, 0.1})), {0, 1, 0, 0});
}

TEST_CASE("sampling: a higher temperature evens out, a lower one sharpens") {
    check_shares(shares(plain(0.5), row(FOUR)), {16 / 30., 9 / 30., 4 / 30., 1 / 30.});
    check_shares(shares(plain(2), row({0.64, 0.36})), {0.8 / 1.4, 0.6 / 1.4});
}

TEST_CASE("sampling: topK, topP, minP, typicalP and topNSigma leave out the tokens they must") {
    Request request       = plain();
    request.options.top_k = 2;
    check_shares(shares(request, row(FOUR)), {4 / 7., 3 / 7., 0, 0});

    request               = plain();
    request.options.top_p = 0.75;
    check_shares(shares(request, row(FOUR)), {4 / 9., 3 / 9., 2 / 9., 0});

    request               = plain();
    request.options.min_p = 0.45;
    check_shares(shares(request, row(FOUR)), {4 / 9., 3 / 9., 2 / 9., 0});

    // The expected surprise of these is 1.28 nats, that of the 0.3 token 1.20: it is the most typical one.
    request                   = plain();
    request.options.typical_p = 0.25;
    check_shares(shares(request, row(FOUR)), {0, 1, 0, 0});

    request                     = plain();
    request.options.top_n_sigma = 0.5;
    auto logits                 = row({0.4, 0.4});
    std::fill(logits.begin() + 2, logits.end(), -3.0f); // together about 0.9 of the mass, far below the top
    CHECK(shares(plain(), logits)[0] < 0.1);
    check_shares(shares(request, logits), {0.5, 0.5, 0});
    request.options.typical_p = 0.9; // looks at the logarithms of what is left
    check_shares(shares(request, logits), {0.5, 0.5, 0});
}

TEST_CASE("sampling: the dynamic temperature is high where the model is unsure and low where it is sure") {
    Request request                = plain();
    request.options.dynatemp_range = 0.9;
    const std::vector<double> sure = {0.95, 0.05};
    CHECK(shares(request, row(sure))[0] > shares(plain(), row(sure))[0] + 0.02);
    auto unsure = row({});
    std::fill(unsure.begin(), unsure.end(), 0.0f);
    unsure[0] = 5;
    CHECK(shares(request, unsure)[0] < shares(plain(), unsure)[0] - 0.1);
    request.options.dynatemp_exponent = 10; // now nearly always the lowest temperature
    CHECK(shares(request, unsure)[0] > shares(plain(), unsure)[0] + 0.1);
}

TEST_CASE("sampling: the penalties push down what was said, within their window") {
    Request request                  = plain();
    request.prompt                   = {0, 0, 'p', 'p'};
    request.options.presence_penalty = std::log(2.0);
    check_shares(shares(request, row(FOUR), true), {0.2 / 0.8, 0.3 / 0.8, 0.2 / 0.8, 0.1 / 0.8});
    request.options.presence_penalty  = 0;
    request.options.frequency_penalty = std::log(2.0); // twice in the prompt: a quarter
    check_shares(shares(request, row(FOUR), true), {0.1 / 0.7, 0.3 / 0.7, 0.2 / 0.7, 0.1 / 0.7});
    request.options.penalty_window = 2;
    check_shares(shares(request, row(FOUR), true), FOUR);
    request.options.penalty_window = 3; // one of the two
    check_shares(shares(request, row(FOUR), true), {0.2 / 0.8, 0.3 / 0.8, 0.2 / 0.8, 0.1 / 0.8});
    request.options.frequency_penalty = -std::log(2.0); // negative: pushed up
    check_shares(shares(request, row(FOUR), true), {0.8 / 1.4, 0.3 / 1.4, 0.2 / 1.4, 0.1 / 1.4});
    request.options.frequency_penalty = 0;
    request.options.repeat_penalty    = 2; // a negative logit is doubled: the probability is squared
    check_shares(shares(request, row(FOUR), true), {0.16 / 0.76, 0.3 / 0.76, 0.2 / 0.76, 0.1 / 0.76});
    request.options.penalty_window = 0;
    check_shares(shares(request, row(FOUR), true), FOUR);
}

TEST_CASE("sampling: a penalty changes what the likeliest token is, also its own") {
    Request request                  = plain(0);
    request.options.presence_penalty = 2;
    FakeVocabulary vocabulary;
    Sampler        sampler(request, vocabulary);
    const auto     logits = row(FOUR);
    CHECK(sampler.sample(logits) == 0);
    CHECK(sampler.sample(logits) == 1);
    CHECK(sampler.sample(logits) == 2);
}

TEST_CASE("sampling: XTC drops all but the least of the top choices, as often as it is told") {
    Request request                 = plain();
    request.options.xtc_probability = 1;
    request.options.xtc_threshold   = 0.15;
    check_shares(shares(request, row(FOUR)), {0, 0, 2 / 3., 1 / 3.});
    request.options.xtc_probability = 0.5;
    check_shares(shares(request, row(FOUR)), {0.2, 0.15, 0.1 + 1 / 3., 0.05 + 1 / 6.});
    request.options.xtc_threshold = 0.5;
    check_shares(shares(request, row(FOUR)), FOUR);
}

TEST_CASE("sampling: mirostat steers the surprise, and penalties still hold") {
    std::vector<double> many(250); // like words: the method's own assumption
    for (size_t i = 0; i < many.size(); i++) {
        many[i] = std::pow(static_cast<double>(i + 1), -1.1);
    }
    for (const int64_t version : {1, 2}) {
        Request low               = plain();
        low.options.mirostat      = version;
        low.options.mirostat_tau  = 1;
        const auto logits         = row(many);
        Request    high           = low;
        high.options.mirostat_tau = 4;
        const auto head           = [&](const Request & request) {
            const auto found = shares(request, logits);
            return found[0] + found[1] + found[2] + found[3];
        };
        INFO("version ", version, " low ", head(low), " high ", head(high));
        CHECK(head(low) > 0.8);
        CHECK(head(high) < 0.6);
        Request penalised                  = low;
        penalised.prompt                   = {0};
        penalised.options.presence_penalty = 2;
        CHECK(shares(penalised, logits, true)[0] < 0.7 * shares(low, logits, true)[0]);
    }
}

TEST_CASE("sampling: mirostat that cannot reach its surprise draws among all, it does not become greedy") {
    std::vector<double> even(200, 1 / 200.);
    for (const int64_t version : {1, 2}) {
        Request request              = plain();
        request.options.mirostat     = version;
        request.options.mirostat_tau = 20;
        const auto found             = shares(request, row(even));
        INFO("version ", version);
        CHECK(*std::max_element(found.begin(), found.end()) < 0.05); // native/patches/0004
    }
}

TEST_CASE("sampling: a logit bias lifts, lowers and bans") {
    Request request            = plain();
    request.options.logit_bias = {{0, -100.0}, {3, std::log(5.0)}};
    check_shares(shares(request, row(FOUR)), {0, 0.3, 0.2, 0.5});
    request.options.temperature = 0;
    check_shares(shares(request, row(FOUR)), {0, 0, 0, 1});
    request.options.logit_bias = {{200, 100.0}};
    CHECK(shares(request, row(FOUR))[200] > 0.999);
    auto logits = row(FOUR);
    logits[1]   = -INF; // a forbidden token before it: ids and places differ
    CHECK(shares(request, logits)[200] > 0.999);
}

TEST_CASE("sampling: the same seed gives the same tokens, whatever the options") {
    const auto vary = [](int64_t seed) {
        std::vector<Request> all(7, plain(1.5, seed));
        all[1].options.top_k             = 5;
        all[2].options.top_p             = 0.9;
        all[3].options.mirostat          = 1;
        all[4].options.mirostat          = 2;
        all[5].options.xtc_probability   = 0.5;
        all[5].options.xtc_threshold     = 0.01;
        all[6].options.typical_p         = 0.9;
        all[6].options.frequency_penalty = 0.5;
        return all;
    };
    for (size_t i = 0; i < vary(1).size(); i++) {
        INFO("options ", i);
        CHECK(text(vary(1)[i]) == text(vary(1)[i]));
        CHECK(text(vary(1)[i]) != text(vary(2)[i]));
    }
}

TEST_CASE("sampling: looking only at the highest logits gives the tokens that looking at all gives") {
    // Any bias, also one of nothing, has all logits looked at.
    for (const size_t vocabulary : {257u, 5000u, 49152u}) {
        for (const double temperature : {0.0, 1.0}) {
            for (const bool penalties : {false, true}) {
                Request few       = plain(temperature, 5);
                few.prompt        = {1, 2, 3};
                few.options.top_k = 8;
                few.options.top_p = 0.95;
                if (penalties) {
                    few.options.penalty_window   = 10;
                    few.options.repeat_penalty   = 1.5;
                    few.options.presence_penalty = 1;
                }
                Request all            = few;
                all.options.logit_bias = {{256, 0.0}};
                CHECK(text(few, 9, vocabulary) == text(all, 9, vocabulary));
            }
        }
    }
}

TEST_CASE("sampling: forbidden tokens are never drawn, nonsense is an error, and is one only when watched") {
    auto logits = row(FOUR);
    logits[0]   = -INF;
    for (const double temperature : {0.0, 1.0}) {
        Request request = plain(temperature);
        CHECK(shares(request, logits)[0] == 0);
        for (const float broken : {std::nanf(""), INF}) {
            auto nonsense = row(FOUR);
            nonsense[77]  = broken;
            for (const HealthWatch watch : {HealthWatch::full, HealthWatch::numbers}) {
                request.health_watch = watch;
                CHECK_THROWS_AS(shares(request, nonsense), Error);
            }
            request.health_watch = HealthWatch::off;
            CHECK_NOTHROW(shares(request, nonsense));
            CHECK_NOTHROW(shares(request, std::vector<float>(FAKE_VOCABULARY, broken)));
        }
    }
}

TEST_CASE("sampling: log probabilities are the model's own, whatever is done to them") {
    Request request                  = plain(0.3);
    request.prompt                   = {0};
    request.options.presence_penalty = 2;
    request.options.logprobs         = true;
    request.options.top_logprobs     = 3;
    FakeVocabulary vocabulary;
    Sampler        sampler(request, vocabulary);
    CHECK(!sampler.logprobs());
    for (int i = 0; i < 20; i++) {
        const Token token = sampler.sample(row(FOUR));
        REQUIRE(sampler.logprobs());
        const TokenLogprobs & told = *sampler.logprobs();
        CHECK(told.chosen.token == token);
        CHECK(told.chosen.text == vocabulary.piece(token));
        CHECK(told.chosen.logprob ==
              doctest::Approx(std::log(FOUR[static_cast<size_t>(token)])).epsilon(1e-4));
        REQUIRE(told.top.size() == 3);
        for (size_t k = 0; k < 3; k++) {
            CHECK(told.top[k].token == static_cast<Token>(k));
            CHECK(told.top[k].logprob == doctest::Approx(std::log(FOUR[k])).epsilon(1e-4));
        }
    }
}

TEST_CASE("sampling: options that the vocabulary contradicts are refused by name") {
    Request request            = plain();
    request.options.logit_bias = {{FAKE_VOCABULARY, 1.0}};
    CHECK(refused(request) == ErrorCode::invalid_option);
    request.options.logit_bias = {{FAKE_VOCABULARY - 1, 1.0}};
    CHECK(refused(request) == ErrorCode::internal); // it is not
    request.options.top_logprobs = 1;
    CHECK(refused(request) == ErrorCode::invalid_option);
    request                               = plain();
    request.options.dry_sequence_breakers = {std::string(41, 'x')};
    CHECK(refused(request) == ErrorCode::invalid_option);
    request.options.dry_sequence_breakers = {""};
    CHECK(refused(request) == ErrorCode::invalid_option);
}

TEST_CASE("sampling: a grammar or DRY without a model's vocabulary is refused, not ignored") {
    FakeVocabulary vocabulary;
    Request        request         = plain();
    request.options.dry_multiplier = 1;
    CHECK_THROWS_AS(Sampler(request, vocabulary), Error);
    request              = plain();
    request.grammar.text = "root ::= \"x\"";
    CHECK_THROWS_AS(Sampler(request, vocabulary), Error);
}

TEST_CASE("sampling: who takes over an answer draws what would have been drawn") {
    std::vector<Request> requests        = {plain(0), plain(1, 5), plain(0.7, 9), plain(2, 11)};
    requests[1].options.top_k            = 40;
    requests[1].options.top_p            = 0.9;
    requests[2].options.repeat_penalty   = 1.5;
    requests[2].options.presence_penalty = 0.5;
    requests[2].options.penalty_window   = 7;
    requests[3].options.dynatemp_range   = 0.5;
    requests[3].options.min_p            = 0.1;
    for (Request & request : requests) {
        request.options.logit_bias     = {{FAKE_END, -std::numeric_limits<double>::infinity()}};
        const std::vector<Token> whole = text(request);
        for (const size_t cut : {1, 2, 8, 30, 59}) {
            CAPTURE(cut);
            const std::vector<Token> expected(whole.begin() + static_cast<ptrdiff_t>(cut), whole.end());
            CHECK(rest(request, whole, cut) == expected);
        }
    }
}

TEST_CASE("sampling: penalties count what was generated before once") {
    FakeVocabulary     vocabulary;
    std::vector<float> logits(FAKE_VOCABULARY, -20.0f);
    logits[0] = 10;
    logits[1] = 9;
    for (const double penalty : {0.8, 1.2}) {
        Request request                   = plain(0);
        request.options.frequency_penalty = penalty;
        request.options.penalty_window    = 64;
        follow_replay(request, {{0}, {}, {}, 0}, vocabulary, 1000);
        CHECK(Sampler(request, vocabulary).sample(logits) == (penalty < 1 ? 0 : 1));
    }
}

TEST_CASE(
    "sampling: where draws cannot be counted, who takes over does not begin with the first ones again") {
    for (const bool mirostat : {true, false}) {
        Request request                 = plain(1, 3);
        request.options.mirostat        = mirostat ? 2 : 0;
        request.options.mirostat_tau    = 50;
        request.options.xtc_probability = mirostat ? 0 : 0.5;
        request.options.xtc_threshold   = 0.05;
        const std::vector<float> logits = row(FOUR);
        FakeVocabulary           vocabulary;
        const auto               draw_from = [&](const Request & wanted) {
            Sampler            sampler(wanted, vocabulary);
            std::vector<Token> tokens;
            for (int i = 0; i < 40; i++) {
                tokens.push_back(sampler.sample(logits));
            }
            return tokens;
        };
        Request follower = request;
        follow_replay(follower, {std::vector<Token>(20, 'a'), {}, {}, 0}, vocabulary, 1000);
        CHECK(draw_from(follower) != draw_from(request));
        CHECK(draw_from(follower) == draw_from(follower));
    }
}
