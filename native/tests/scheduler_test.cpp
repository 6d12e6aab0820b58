// The scheduler over a fake decoder: admission, streaming, cancel, limits (cases G2, G3, G4, G5, H2).
#include "scheduler_bench.h"

#include <doctest/doctest.h>

#include <map>

using namespace headrace;

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
    CHECK(prompt > 100);
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
    CHECK(bench.decoder.sequences.at(0).empty()); // nobody continues from nonsense
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

TEST_CASE("scheduler: requests go by priority, then by age") {
    Bench bench(speaker(4, "ok"));
    for (RequestId id = 1; id <= 4; id++) {
        auto wanted             = request(id, 4);
        wanted.options.priority = id == 3 ? 5 : 0;
        bench.scheduler.submit(std::move(wanted));
    }
    bench.run();
    std::vector<RequestId> order;
    for (const Event & event : bench.events) {
        if (const auto * done = std::get_if<DoneEvent>(&event)) {
            order.push_back(done->id);
        }
    }
    CHECK(order == std::vector<RequestId>{3, 1, 2, 4});
}

TEST_CASE("scheduler: a full queue refuses one more, and takes it when there is room again") {
    Bench bench(speaker(4, "ok"), {.slots = 1, .batch_size = 32, .queue_limit = 2});
    for (RequestId id = 1; id <= 3; id++) {
        bench.scheduler.check_room();
        bench.scheduler.submit(request(id, 4));
    }
    CHECK_THROWS_AS(bench.scheduler.check_room(), Error);
    bench.run(2);
    bench.scheduler.cancel(3);
    bench.run(1);
    bench.scheduler.check_room();
    bench.run();
}

TEST_CASE("scheduler: a request past its deadline fails, waiting or running, its neighbours go on") {
    Bench bench([](const std::vector<Token> &) { return Token{'x'}; }, 1);
    auto  hurried                 = request(1, 4, 1000);
    hurried.options.deadline_ms   = 100;
    auto impatient                = request(2, 4, 10);
    impatient.options.deadline_ms = 50;
    bench.scheduler.submit(std::move(hurried));
    bench.scheduler.submit(std::move(impatient));
    bench.scheduler.submit(request(3, 4, 10));
    bench.run();
    for (RequestId id : {1, 2}) {
        REQUIRE(bench.all<FailedEvent>(id).size() == 1);
        CHECK(bench.all<FailedEvent>(id)[0].error.code == ErrorCode::deadline_exceeded);
    }
    CHECK(bench.streamed(1).size() > 5); // what there was has been streamed
    CHECK(bench.all<DoneEvent>(3)[0].text == std::string(10, 'x'));
}

TEST_CASE("scheduler: a prompt that cannot be computed by its deadline fails before it costs anything") {
    Bench bench([](const std::vector<Token> &) { return Token{'x'}; }, 1, 32, 100000);
    bench.answer(request(1, 400, 2)); // from this the cost of a token is known
    auto hopeless                = request(2, 50000, 2);
    hopeless.options.deadline_ms = 60;
    hopeless.prompt[0]           = 'n';
    bench.scheduler.submit(std::move(hopeless));
    bench.decoder.computed();
    bench.run();
    REQUIRE(bench.all<FailedEvent>(2).size() == 1);
    CHECK(bench.all<FailedEvent>(2)[0].error.code == ErrorCode::deadline_exceeded);
    CHECK(bench.decoder.computed() == 0);
}

TEST_CASE("scheduler: a full context slides when the request allows it, and the answer goes on") {
    Bench bench([](const std::vector<Token> &) { return Token{'x'}; }, 1, 32, 64);
    auto  wanted            = request(1, 10, 500);
    wanted.options.overflow = "shift";
    const DoneEvent done    = bench.answer(std::move(wanted));
    CHECK(done.text == std::string(500, 'x'));
    CHECK(done.finish_reason == FinishReason::length);
    CHECK(done.stats.slid >= 500 + 10 - 64);
    CHECK(bench.decoder.sequences.at(0).size() <= 64);
    CHECK(bench.decoder.sequences.at(0)[9] == 'p'); // the head has stayed
}

TEST_CASE("scheduler: one pass computes with one set of adapters, and every set gets its passes") {
    Bench bench([](const std::vector<Token> &) { return Token{'x'}; }, 3);
    for (RequestId id = 1; id <= 3; id++) {
        auto wanted = request(id, 4, 50);
        if (id < 3) {
            wanted.adapters    = {{0, static_cast<float>(id)}};
            wanted.adapters_id = std::to_string(id);
        }
        bench.scheduler.submit(std::move(wanted));
    }
    std::map<RequestId, size_t> passes;
    while (bench.scheduler.unfinished() > 0) {
        const size_t before = bench.decoder.plans.size();
        bench.scheduler.step();
        bench.scheduler.flush();
        for (size_t i = before; i < bench.decoder.plans.size(); i++) {
            for (const Contribution & contribution : bench.decoder.plans[i].contributions) {
                const auto & used = bench.decoder.adapters_in_use;
                CHECK(used.size() == (contribution.request < 3 ? 1 : 0));
                CHECK((used.empty() || used[0].scale == static_cast<float>(contribution.request)));
                passes[contribution.request]++;
            }
        }
    }
    CHECK(passes[1] == passes[2]);
    CHECK(passes[2] == passes[3]);
}

TEST_CASE("scheduler: after its context has slid a request still has the time that it has") {
    Bench bench([](const std::vector<Token> &) { return Token{'x'}; }, 1, 32, 64);
    bench.answer(request(1, 60, 2)); // from this the cost of a token is known
    auto wanted                = request(2, 60, 200);
    wanted.prompt[0]           = 'n';
    wanted.options.overflow    = "shift";
    wanted.options.deadline_ms = 5000;
    CHECK(bench.answer(std::move(wanted)).text == std::string(200, 'x'));
}
