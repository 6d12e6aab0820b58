// The embedder over a fake model: passes, pooling, and what ends a request (cases G10, G11).
#include "engine/embedding.h"

#include "fake_embedder.h"

#include <doctest/doctest.h>

#include <cmath>

using namespace headrace;

namespace {

using Vectors = std::vector<std::vector<float>>;

EmbedRequest request(RequestId id, std::vector<std::vector<Token>> inputs, Pooling pooling = Pooling::mean) {
    return {id, std::move(inputs), pooling, false};
}

struct Bench {
    explicit Bench(EmbedLimits limits) : embedder(model, limits, events, [this] { return now += pass_ms; }) {}

    void run() {
        for (int i = 0; i < 1000 && embedder.unfinished() > 0; i++) {
            embedder.step(std::nullopt);
        }
        REQUIRE(embedder.unfinished() == 0);
    }

    const EmbeddedEvent & done() const { return std::get<EmbeddedEvent>(events.back()); }
    const FailedEvent &   failed() const { return std::get<FailedEvent>(events.back()); }

    FakeEmbedder model;
    EventQueue   events;
    double       now     = 0;
    double       pass_ms = 1;
    Embedder     embedder;
};

size_t sequences_of(const EmbedPass & pass) {
    return static_cast<size_t>(pass.entries.back().sequence) + 1;
}

} // namespace

TEST_CASE("embedding: the poolings take the mean, the first and the last token") {
    const std::vector<std::pair<Pooling, Vectors>> expected = {
        {Pooling::mean, {{20, 1, 1}, {7, 0, 1}}},
        {Pooling::cls, {{10, 0, 1}, {7, 0, 1}}},
        {Pooling::last, {{30, 2, 1}, {7, 0, 1}}},
    };
    for (const auto & [pooling, vectors] : expected) {
        Bench bench({100, 100, 8, true});
        bench.embedder.submit(request(1, {{10, 20, 30}, {7}}, pooling));
        bench.run();
        CHECK(bench.done().vectors == vectors);
        CHECK(bench.done().usage.input_tokens == 4);
        CHECK(bench.done().usage.output_tokens == 0);
        CHECK(bench.model.passes.size() == 1);
    }
}

TEST_CASE("embedding: an input in parts gives what it gives in one piece") {
    std::vector<Token> input;
    for (Token token = 1; token <= 50; token++) {
        input.push_back(token * token);
    }
    for (const Pooling pooling : {Pooling::mean, Pooling::cls, Pooling::last}) {
        Bench whole({100, 100, 8, true});
        whole.embedder.submit(request(1, {{5}, input, {6}}, pooling));
        whole.run();
        Bench parts({100, 7, 8, false});
        parts.embedder.submit(request(1, {{5}, input, {6}}, pooling));
        parts.run();
        CHECK(parts.done().vectors == whole.done().vectors);
        CHECK(parts.model.passes.size() > 7);
        for (const EmbedPass & pass : parts.model.passes) {
            CHECK(pass.entries.size() <= 7);
        }
    }
}

TEST_CASE("embedding: an input that must be whole is, however large the pass then becomes") {
    Bench bench({100, 20, 8, true});
    bench.embedder.submit(request(1, {{1}, std::vector<Token>(90, 2), {3}}));
    bench.run();
    REQUIRE(bench.model.passes.size() == 3);
    CHECK(bench.model.passes[1].entries.size() == 90);
    CHECK(bench.done().vectors.size() == 3);
}

TEST_CASE("embedding: a pass takes as many inputs as its tokens and sequences allow") {
    Bench bench({100, 64, 4, true});
    bench.embedder.submit(request(1, {{1, 1}, {2}, {3}, {4}, {5}, {6}}));
    bench.run();
    REQUIRE(bench.model.passes.size() == 2);
    CHECK(sequences_of(bench.model.passes[0]) == 4);
    CHECK(bench.model.passes[0].entries.size() == 5);
    CHECK(bench.model.passes[0].room == 5);
    CHECK(sequences_of(bench.model.passes[1]) == 2);
    CHECK(bench.done().vectors[5] == std::vector<float>{6, 0, 1});
}

TEST_CASE("embedding: room is asked for the whole input before its first part") {
    Bench bench({100, 8, 4, false});
    bench.embedder.submit(request(1, {std::vector<Token>(30, 1)}));
    bench.run();
    CHECK(bench.model.passes.front().fresh);
    CHECK(bench.model.passes.front().room == 30);
    CHECK(bench.model.passes.front().entries.size() == 8);
    CHECK_FALSE(bench.model.passes[1].fresh);
}

TEST_CASE("embedding: vectors are scaled to length 1, and one of zeros stays") {
    Bench        bench({100, 100, 8, true});
    EmbedRequest scaled = request(1, {{0}, {2, 2}});
    scaled.normalize    = true;
    bench.embedder.submit(scaled);
    bench.run();
    CHECK(bench.done().vectors[0] == std::vector<float>{0, 0, 0});
    const std::vector<float> & vector = bench.done().vectors[1]; // {2, 0.5, 1}
    CHECK(vector[0] == doctest::Approx(2 / std::sqrt(5.25)));
    CHECK(vector[1] == doctest::Approx(0.5 / std::sqrt(5.25)));
}

TEST_CASE("embedding: what is no number fails its request, and only that") {
    Bench bench({100, 100, 8, true});
    bench.embedder.submit(request(1, {{1}, {2, FAKE_NAN}}));
    bench.embedder.submit(request(2, {{3}}));
    bench.run();
    const auto & failed = std::get<FailedEvent>(bench.events.front());
    CHECK(failed.id == 1);
    CHECK(failed.error.code == ErrorCode::numeric_fault);
    CHECK(std::string(failed.error.what()).find("inputs[1]") != std::string::npos);
    CHECK(bench.model.resets == 1);
    CHECK(bench.done().id == 2);
    CHECK(bench.done().vectors == Vectors{{3, 0, 1}});
}

TEST_CASE("embedding: a pass that fails ends one request, an abort leaves as it came") {
    Bench bench({100, 100, 8, true});
    bench.embedder.submit(request(1, {{FAKE_FAILURE}}));
    bench.embedder.submit(request(2, {{FAKE_ABORT}}));
    bench.embedder.step(std::nullopt);
    CHECK(bench.failed().id == 1);
    CHECK(bench.failed().error.code == ErrorCode::out_of_memory);
    CHECK_THROWS_AS(bench.embedder.step(std::nullopt), Error);
    bench.embedder.fail_all(Error(ErrorCode::engine_aborted, "gone"));
    CHECK(bench.failed().id == 2);
    CHECK(bench.embedder.unfinished() == 0);
}

TEST_CASE("embedding: a request ends between two of its passes when it is cancelled") {
    Bench bench({100, 4, 8, false});
    bench.embedder.submit(request(1, {std::vector<Token>(40, 1)}));
    bench.embedder.submit(request(2, {{3}}));
    bench.embedder.submit(request(3, {{4}}));
    bench.embedder.step(std::nullopt);
    bench.embedder.cancel(1);
    bench.embedder.cancel(3);
    bench.embedder.cancel(3);
    bench.embedder.cancel(1000);
    bench.run();
    REQUIRE(bench.events.size() == 3);
    CHECK(std::get<FailedEvent>(bench.events[0]).id == 1);
    CHECK(std::get<FailedEvent>(bench.events[0]).error.code == ErrorCode::cancelled);
    CHECK(std::get<FailedEvent>(bench.events[1]).id == 3);
    CHECK(bench.done().id == 2);
    CHECK(bench.model.passes.size() == 2);
    CHECK(bench.model.passes[1].fresh);
}

TEST_CASE("embedding: beside streams a pass is as long as time allows, alone as long as the limit") {
    Bench bench({20000, 512, 8, false});
    bench.embedder.submit(request(1, {std::vector<Token>(20000, 1)}));
    const auto last_pass_of = [&](int steps, double pass_ms, bool beside_streams) {
        bench.pass_ms = pass_ms;
        for (int i = 0; i < steps; i++) {
            bench.embedder.step(beside_streams ? std::optional(10.0) : std::nullopt);
        }
        return bench.model.passes.back().entries.size();
    };
    CHECK(last_pass_of(1, 1, true) <= 32); // nothing is known of its cost yet
    CHECK(last_pass_of(10, 1, true) == 512);
    CHECK(last_pass_of(10, 5000, true) <= 32);
    CHECK(last_pass_of(1, 5000, false) == 512);
}

TEST_CASE("embedding: waiting and work are told apart") {
    Bench bench({100, 100, 8, true});
    bench.embedder.submit(request(1, {{1}}));
    bench.now += 500;
    bench.run();
    const EmbedStats & stats = bench.done().stats;
    CHECK(stats.queue_ms >= 500);
    CHECK(stats.total_ms > stats.queue_ms);
    CHECK(stats.tokens_per_second == doctest::Approx(1000 / (stats.total_ms - stats.queue_ms)));
}
