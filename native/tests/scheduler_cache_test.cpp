// The scheduler with its KV cache: keys, shared prefixes, what is really skipped (cases G6, H4), and the
// same answers with and without.
#include "scheduler_bench.h"

#include <doctest/doctest.h>

using namespace headrace;

namespace {

// Says a letter that depends on all of the sequence: a wrong state gives another answer.
Token hashed(const std::vector<Token> & sequence) {
    uint32_t hash = 7;
    for (const Token token : sequence) {
        hash = hash * 31 + static_cast<uint32_t>(token);
    }
    return static_cast<Token>('a' + hash % 26);
}

Request keyed(RequestId id, size_t prompt, const std::string & key, Token last = 'p') {
    Request wanted             = request(id, prompt, 8);
    wanted.prompt.back()       = last;
    wanted.options.context_key = key;
    return wanted;
}

} // namespace

TEST_CASE("scheduler_cache: a warm key skips the compute and gives the same answer") {
    Bench           bench(hashed, 2);
    const DoneEvent cold = bench.answer(keyed(1, 500, "a"));
    CHECK(bench.decoder.computed() == 500 + 7);
    const DoneEvent warm = bench.answer(keyed(2, 500, "a"));
    CHECK(bench.decoder.computed() == 1 + 7);
    CHECK(warm.text == cold.text);
    CHECK(warm.usage.cached_tokens == 499);
    CHECK(warm.stats.cache.source == CacheSource::live);
    CHECK(cold.stats.cache.source == CacheSource::none);
}

TEST_CASE("scheduler_cache: a shared beginning is paid once, whatever the key") {
    Bench bench(hashed, 2);
    bench.answer(keyed(1, 500, "a", 'x'));
    bench.decoder.computed();
    const DoneEvent other = bench.answer(keyed(2, 500, "b", 'y'));
    CHECK(bench.decoder.computed() == 1 + 7);
    CHECK(other.stats.cache.source == CacheSource::prefix);
    Bench fresh(hashed, 2);
    CHECK(fresh.answer(keyed(1, 500, "b", 'y')).text == other.text);
}

TEST_CASE("scheduler_cache: requests with one key run one after another, others pass them by") {
    Bench bench(hashed, 3);
    for (RequestId id = 1; id <= 3; id++) {
        bench.scheduler.submit(keyed(id, 50, "a"));
    }
    bench.scheduler.submit(keyed(4, 50, "b"));
    bench.run(4);
    CHECK(bench.scheduler.metrics().running == 2);
    CHECK(bench.scheduler.metrics().waiting == 2);
    bench.run();
    for (RequestId id = 1; id <= 4; id++) {
        CHECK(bench.all<DoneEvent>(id).size() == 1);
    }
    CHECK(bench.all<DoneEvent>(2)[0].usage.cached_tokens == 49);
}

TEST_CASE("scheduler_cache: a conversation goes on where it was") {
    Bench           bench(hashed, 1);
    Request         first  = keyed(1, 100, "talk");
    auto            prompt = first.prompt;
    const DoneEvent answer = bench.answer(std::move(first));
    prompt.insert(prompt.end(), answer.token_ids.begin(), answer.token_ids.end());
    prompt.push_back('?');
    Request second       = keyed(2, 1, "talk");
    second.prompt        = prompt;
    const DoneEvent next = bench.answer(std::move(second));
    CHECK(next.usage.cached_tokens == 107); // all but the token that was sampled last
}

TEST_CASE("scheduler_cache: a cancelled prompt is continued where it was left") {
    Bench bench(hashed, 1);
    bench.scheduler.submit(keyed(1, 900, "a"));
    bench.run(5);
    bench.scheduler.cancel(1);
    bench.run();
    const size_t done = bench.decoder.computed();
    CHECK(done < 900);
    const DoneEvent whole = bench.answer(keyed(2, 900, "a"));
    CHECK(whole.usage.cached_tokens == done);
    CHECK(bench.decoder.computed() == 900 - done + 7);
}

TEST_CASE("scheduler_cache: without trimming, a repeated prompt still costs only its last token") {
    Bench           bench(hashed, {.slots = 1, .batch_size = 64}, 1000, /*trims*/ false);
    const DoneEvent cold = bench.answer(keyed(1, 500, "a"));
    bench.decoder.computed();
    const DoneEvent warm = bench.answer(keyed(2, 500, "a"));
    CHECK(bench.decoder.computed() == 1 + 7);
    CHECK(warm.text == cold.text);
    CHECK(warm.stats.cache.source == CacheSource::prefix);
}

TEST_CASE(
    "scheduler_cache: without trimming, the third prompt with a common beginning pays only its own part") {
    Bench      bench(hashed, {.slots = 1, .batch_size = 64}, 1000, /*trims*/ false);
    const auto own = [](RequestId id) {
        Request wanted = keyed(id, 300, "");
        std::fill(wanted.prompt.begin() + 200, wanted.prompt.end(), static_cast<Token>('A' + id));
        return wanted;
    };
    bench.answer(own(1));
    bench.answer(own(2));
    bench.decoder.computed();
    CHECK(bench.answer(own(3)).usage.cached_tokens == 200);
    CHECK(bench.decoder.computed() == 100 + 7);
}

TEST_CASE("scheduler_cache: the metrics tell what was computed and what was not") {
    Bench bench(hashed, 2);
    bench.answer(keyed(1, 500, "a"));
    bench.answer(keyed(2, 500, "a"));
    const EngineMetrics metrics = bench.scheduler.metrics();
    CHECK(metrics.accepted == 2);
    CHECK(metrics.finished == 2);
    CHECK(metrics.prefill_tokens == 501);
    CHECK(metrics.cached_tokens == 499);
    CHECK(metrics.decode_tokens == 14);
    CHECK(metrics.busy_ms > 0);
}

TEST_CASE("scheduler_cache: prompts that come together compute their common beginning once") {
    for (const bool trims : {true, false}) {
        Bench bench(hashed, {.slots = 4, .batch_size = 64}, 1000, trims);
        for (RequestId id = 1; id <= 4; id++) {
            Request wanted = request(id, 400, 8);
            std::fill(wanted.prompt.begin() + 300, wanted.prompt.end(), static_cast<Token>('A' + id));
            bench.scheduler.submit(std::move(wanted));
        }
        bench.run();
        CHECK(bench.scheduler.metrics().prefill_tokens == 300 + 4 * 100);
        for (RequestId id = 1; id <= 4; id++) {
            Bench   alone(hashed, {.slots = 1, .batch_size = 64}, 1000, trims);
            Request same = request(1, 400, 8);
            std::fill(same.prompt.begin() + 300, same.prompt.end(), static_cast<Token>('A' + id));
            REQUIRE(bench.all<DoneEvent>(id).size() == 1);
            CHECK(bench.all<DoneEvent>(id)[0].text == alone.answer(std::move(same)).text);
        }
    }
}

TEST_CASE("scheduler_cache: nobody waits for a beginning that cannot be had, is short, or will not be kept") {
    Bench bench(hashed, {.slots = 2, .batch_size = 64});
    bench.scheduler.submit(request(1, 900, 8));
    Request other    = request(2, 900, 8);
    other.prompt[40] = 'q'; // 40 tokens in common
    bench.scheduler.submit(std::move(other));
    bench.run(2);
    CHECK(bench.scheduler.metrics().running == 2);

    Bench full(hashed, {.slots = 2, .batch_size = 64}, 100000);
    full.scheduler.submit(request(1, 90000, 2));
    full.scheduler.submit(request(2, 90000, 2)); // 360 kB of state: fits; but see the next one
    full.run();
    CHECK(full.all<DoneEvent>(2).size() == 1);

    Bench none(hashed, {.slots = 2, .batch_size = 64}, 1000000);
    none.scheduler.submit(request(1, 500000, 2)); // 2 MB of state: more than the store takes
    none.scheduler.submit(request(2, 500000, 2));
    none.run(100000);
    CHECK(none.all<DoneEvent>(2).size() == 1);
}

TEST_CASE("scheduler_cache: who is in a hurry does not wait for another one's prompt") {
    Bench bench(hashed, {.slots = 2, .batch_size = 32}, 2000);
    auto  slow            = request(1, 900, 8);
    slow.options.priority = -1;
    auto urgent           = request(2, 900, 8);
    bench.scheduler.submit(std::move(slow));
    bench.run(2);
    bench.scheduler.submit(std::move(urgent));
    bench.run(2);
    CHECK(bench.scheduler.metrics().running == 2);
}

TEST_CASE("scheduler_cache: without room for snapshots nobody waits for another one's prompt") {
    FakeDecoder    decoder(hashed, 2000);
    FakeVocabulary vocabulary;
    PrefixStore    store({}, [] { return 0.0; });
    EventQueue     events;
    double         now = 0;
    Scheduler      scheduler({decoder, vocabulary, store, events}, [&] { return now += 1; },
                             {.slots = 2, .batch_size = 32});
    scheduler.submit(request(1, 900, 8));
    scheduler.submit(request(2, 900, 8));
    scheduler.step();
    scheduler.step();
    CHECK(scheduler.metrics().running == 2);
}
