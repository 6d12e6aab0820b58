// The scheduler over a fake decoder: admission, streaming, cancel, limits (cases G2, G3, G4, G5, H2).
#include "engine/scheduler.h"

#include "fake_decoder.h"

#include <doctest/doctest.h>

#include <map>

using namespace headrace;

namespace {

// Says the letters of a sentence, chosen by the request's first prompt token, then ends.
FakeDecoder::Next speaker(size_t prompt, const std::string & text) {
    return [=](const std::vector<Token> & sequence) {
        const size_t said = sequence.size() - prompt;
        return said < text.size() ? static_cast<Token>(static_cast<uint8_t>(text[said])) : FAKE_END;
    };
}

Request request(RequestId id, size_t prompt, int64_t max_tokens = 100) {
    Request request;
    request.id                  = id;
    request.prompt              = std::vector<Token>(prompt, 'p');
    request.options.temperature = 0;
    request.options.max_tokens  = max_tokens;
    request.options.seed        = 1;
    return request;
}

struct Bench {
    explicit Bench(FakeDecoder::Next next, size_t slots = 1, size_t batch = 32, size_t context = 1000)
        : decoder(std::move(next), context),
          scheduler(decoder, vocabulary, events, [this] { return now += 1; }, slots, batch) {}

    void run(int steps = 10000) {
        for (int i = 0; i < steps && scheduler.unfinished() > 0; i++) {
            scheduler.step();
            scheduler.flush();
        }
    }

    template <class Kind> std::vector<Kind> all(RequestId id) const {
        std::vector<Kind> found;
        for (const Event & event : events) {
            const auto * kind = std::get_if<Kind>(&event);
            if (kind && kind->id == id) {
                found.push_back(*kind);
            }
        }
        return found;
    }

    std::string streamed(RequestId id) const {
        std::string text;
        for (const TokensEvent & event : all<TokensEvent>(id)) {
            text += event.text;
        }
        return text;
    }

    double         now = 0;
    EventQueue     events;
    FakeVocabulary vocabulary;
    FakeDecoder    decoder;
    Scheduler      scheduler;
};

} // namespace

TEST_CASE("scheduler: a request streams its text and ends with the reason stop") {
    Bench bench(speaker(3, "hello"));
    bench.scheduler.submit(request(1, 3));
    bench.run();
    const auto done = bench.all<DoneEvent>(1);
    REQUIRE(done.size() == 1);
    CHECK(done[0].text == "hello");
    CHECK(bench.streamed(1) == "hello");
    CHECK(done[0].finish_reason == FinishReason::stop);
    CHECK(done[0].token_ids == std::vector<Token>{'h', 'e', 'l', 'l', 'o', FAKE_END});
    CHECK(done[0].usage.input_tokens == 3);
    CHECK(done[0].usage.output_tokens == 6);
    CHECK(done[0].stats.ttft_ms > 0);
    CHECK(done[0].stats.itl_p50_ms > 0);
    CHECK(bench.all<TokensEvent>(1).size() >= 5);
}

TEST_CASE("scheduler: maxTokens and the context's end finish with the reason length") {
    Bench few(speaker(3, "a long story"));
    few.scheduler.submit(request(1, 3, 4));
    few.run();
    CHECK(few.all<DoneEvent>(1)[0].text == "a lo");
    CHECK(few.all<DoneEvent>(1)[0].finish_reason == FinishReason::length);

    Bench full(speaker(6, std::string(100, 'x')), 1, 32, 10);
    full.scheduler.submit(request(1, 6));
    full.run();
    CHECK(full.all<DoneEvent>(1)[0].finish_reason == FinishReason::length);
    CHECK(full.all<DoneEvent>(1)[0].text == "xxxxx"); // 10 - 6 computed, and the last one sampled
}

TEST_CASE("scheduler: a stop string ends the text before it, also across tokens") {
    Bench bench(speaker(1, "one two three"));
    auto  wanted        = request(1, 1);
    wanted.options.stop = {" tw"};
    bench.scheduler.submit(std::move(wanted));
    bench.run();
    CHECK(bench.all<DoneEvent>(1)[0].text == "one");
    CHECK(bench.streamed(1) == "one");
    CHECK(bench.all<DoneEvent>(1)[0].finish_reason == FinishReason::stop);
}

TEST_CASE("scheduler: a stop token ends the generation and is not text") {
    Bench bench(speaker(1, "yes|no"));
    auto  wanted       = request(1, 1);
    wanted.stop_tokens = {'|'};
    bench.scheduler.submit(std::move(wanted));
    bench.run();
    CHECK(bench.all<DoneEvent>(1)[0].text == "yes");
}

TEST_CASE("scheduler: a cancel in mid-stream frees the slot for the next request") {
    Bench bench(speaker(2, std::string(500, 'z')));
    bench.scheduler.submit(request(1, 2, 400));
    bench.run(10);
    bench.scheduler.cancel(1);
    bench.scheduler.cancel(1);
    bench.scheduler.submit(request(2, 2, 5));
    bench.run();
    CHECK(bench.all<DoneEvent>(1).size() == 1);
    CHECK(bench.all<DoneEvent>(1)[0].finish_reason == FinishReason::cancelled);
    CHECK(bench.all<DoneEvent>(1)[0].text == bench.streamed(1));
    CHECK(bench.all<DoneEvent>(2)[0].text == "zzzzz");
    CHECK(bench.decoder.sequences.empty());
}

TEST_CASE("scheduler: a long prefill can be cancelled in the middle, a queued request before it began") {
    Bench bench(speaker(900, "x"), 1, 32);
    bench.scheduler.submit(request(1, 900));
    bench.scheduler.submit(request(2, 900));
    bench.run(3);
    bench.scheduler.cancel(2);
    bench.scheduler.cancel(1);
    bench.scheduler.cancel(99);
    bench.run();
    CHECK(bench.all<DoneEvent>(1)[0].finish_reason == FinishReason::cancelled);
    CHECK(bench.all<DoneEvent>(2)[0].finish_reason == FinishReason::cancelled);
    CHECK(bench.all<DoneEvent>(1)[0].usage.output_tokens == 0);
    CHECK(bench.decoder.plans.size() < 900 / 32);
    CHECK(bench.scheduler.unfinished() == 0);
}

TEST_CASE("scheduler: more requests than slots all finish, in the order they came") {
    Bench bench(speaker(4, "ok"), 2);
    for (RequestId id = 1; id <= 7; id++) {
        bench.scheduler.submit(request(id, 4));
    }
    bench.run();
    std::vector<RequestId> order;
    for (const Event & event : bench.events) {
        if (const auto * done = std::get_if<DoneEvent>(&event)) {
            CHECK(done->text == "ok");
            order.push_back(done->id);
        }
    }
    CHECK(order == std::vector<RequestId>{1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("scheduler: running streams get a token in every step while a long prompt prefills") {
    Bench bench([](const std::vector<Token> &) { return Token{'x'}; }, 3, 32, 5000);
    bench.scheduler.submit(request(1, 2, 1000));
    bench.scheduler.submit(request(2, 2, 1000));
    bench.run(3);
    bench.scheduler.submit(request(3, 2000, 10));
    const size_t before = bench.decoder.plans.size();
    bench.run(40);
    size_t prompt = 0;
    for (size_t i = before; i < bench.decoder.plans.size(); i++) {
        CHECK(bench.decoder.plans[i].decode_tokens >= 2);
        prompt += bench.decoder.plans[i].prefill_tokens;
    }
    CHECK(prompt > 500);
}

TEST_CASE("scheduler: when the engine fails, running and queued requests fail with the same error") {
    Bench bench(speaker(2, "never"), 1);
    bench.scheduler.submit(request(1, 2));
    bench.scheduler.submit(request(2, 2));
    bench.run(1);
    bench.scheduler.fail_all(Error(ErrorCode::engine_aborted, "it broke"));
    CHECK(bench.scheduler.unfinished() == 0);
    for (RequestId id : {1, 2}) {
        REQUIRE(bench.all<FailedEvent>(id).size() == 1);
        CHECK(bench.all<FailedEvent>(id)[0].error.code == ErrorCode::engine_aborted);
    }
}

TEST_CASE("scheduler: a request whose logits are no numbers fails, its neighbour goes on") {
    Bench bench(
        [](const std::vector<Token> & sequence) {
            const bool broken = sequence.front() == 'n' && sequence.size() > 5;
            return broken ? FAKE_NONSENSE : Token{'x'};
        },
        2);
    auto nonsense   = request(1, 2, 20);
    nonsense.prompt = {'n', 'n'};
    bench.scheduler.submit(std::move(nonsense));
    bench.scheduler.submit(request(2, 2, 20));
    bench.run();
    REQUIRE(bench.all<FailedEvent>(1).size() == 1);
    CHECK(bench.all<FailedEvent>(1)[0].error.code == ErrorCode::numeric_fault);
    CHECK(bench.streamed(1) == "xxxx");
    CHECK(bench.all<DoneEvent>(2)[0].text == std::string(20, 'x'));
    CHECK(bench.decoder.sequences.empty());
}

TEST_CASE("scheduler: the same seed gives the same text") {
    const auto flat = [](uint64_t seed) {
        Bench bench(
            [](const std::vector<Token> & sequence) { return static_cast<Token>(sequence.size() % 256); });
        auto wanted                = request(1, 2, 20);
        wanted.options.temperature = 5;
        wanted.options.top_k       = 0;
        wanted.options.top_p       = 1;
        wanted.options.min_p       = 0;
        wanted.options.seed        = static_cast<int64_t>(seed);
        bench.scheduler.submit(std::move(wanted));
        bench.run();
        return bench.all<DoneEvent>(1)[0].token_ids;
    };
    CHECK(flat(11) == flat(11));
    CHECK(flat(11) != flat(12));
}
