// What requests continue from: live sequences, snapshots, and who is evicted (cases G6, H4).
//
// Over a fake decoder whose sequences can be looked into; files are tested in snapshot_folder_test.cpp.
#include "engine/kv_cache.h"

#include "engine/prefix_store.h"

#include "fake_decoder.h"

#include <doctest/doctest.h>

#include <numeric>

using namespace headrace;

namespace {

std::vector<Token> numbered(size_t count, Token first = 0) {
    std::vector<Token> tokens(count);
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
}

std::vector<Token> operator+(std::vector<Token> a, const std::vector<Token> & b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

Request wants(std::vector<Token> prompt, std::string key = "", std::string adapters = "") {
    Request request;
    request.prompt              = std::move(prompt);
    request.options.context_key = std::move(key);
    request.adapters_id         = std::move(adapters);
    return request;
}

struct Bench {
    explicit Bench(size_t sequences, bool trims = true, size_t bytes = 1 << 20)
        : store(settings(trims, bytes), [] { return 0.0; }), cache(decoder, store, sequences) {
        decoder.trims = trims;
    }

    static PrefixStoreSettings settings(bool trims, size_t bytes) {
        PrefixStoreSettings settings;
        settings.memory_bytes = bytes;
        settings.trimmable    = trims;
        return settings;
    }

    // Computes the prompt from where the lease begins to where it ends, as the scheduler would.
    KvCache::Lease begin(const Request & request) {
        const auto lease = cache.acquire(request);
        REQUIRE(lease);
        CHECK(decoder.sequences[static_cast<uint32_t>(lease->sequence)].size() == lease->reused.tokens);
        compute(*lease, request.prompt, lease->reused.tokens, request.prompt.size());
        cache.save(*lease);
        return *lease;
    }

    void compute(const KvCache::Lease & lease, const std::vector<Token> & tokens, size_t from, size_t to) {
        BatchPlan plan;
        for (size_t i = from; i < to; i++) {
            plan.contributions.push_back({ContributionKind::prefill, static_cast<uint32_t>(lease.sequence), 1,
                                          tokens[i], static_cast<int32_t>(i), false});
        }
        decoder.decode(plan);
        for (size_t i = from; i < to; i++) {
            cache.append(lease, tokens[i]);
        }
    }

    KvCache::Lease run(const Request & request) {
        const auto lease = begin(request);
        cache.release(lease, true);
        return lease;
    }

    FakeDecoder decoder{[](const std::vector<Token> &) { return Token{0}; }};
    PrefixStore store;
    KvCache     cache;
};

} // namespace

TEST_CASE("kv_cache: the same key continues from the longest common beginning, but never all of the prompt") {
    Bench      bench(2);
    const auto first = bench.run(wants(numbered(100), "a"));
    CHECK(first.reused.source == CacheSource::none);
    const auto again = bench.run(wants(numbered(100), "a"));
    CHECK(again.sequence == first.sequence);
    CHECK(again.reused.source == CacheSource::live);
    CHECK(again.reused.tokens == 99);
    CHECK(bench.run(wants(numbered(60) + numbered(60, 500), "a")).reused.tokens == 60);
    CHECK(bench.run(wants(numbered(60) + numbered(80, 500), "a")).reused.tokens == 120);
}

TEST_CASE("kv_cache: a key in flight is known, and so is its end") {
    Bench      bench(2);
    const auto lease = bench.begin(wants(numbered(10), "a"));
    CHECK(bench.cache.in_flight("a"));
    CHECK(!bench.cache.in_flight("b"));
    CHECK(!bench.cache.in_flight(""));
    bench.cache.release(lease, true);
    CHECK(!bench.cache.in_flight("a"));
}

TEST_CASE("kv_cache: a lease that has ended is refused, also when its sequence is in use again") {
    Bench      bench(1);
    const auto old = bench.run(wants(numbered(10), "a"));
    CHECK_THROWS_AS(bench.cache.append(old, 1), Error);
    const auto young = bench.begin(wants(numbered(10), "a"));
    CHECK_THROWS_AS(bench.cache.append(old, 1), Error);
    CHECK_THROWS_AS(bench.cache.release(old, true), Error);
    bench.cache.append(young, 1);
}

TEST_CASE("kv_cache: evicted are first those without a key, then the least recently used") {
    Bench bench(3);
    bench.run(wants(numbered(40, 1000), "a"));
    bench.run(wants(numbered(40, 2000), "b"));
    bench.run(wants(numbered(40, 3000)));
    bench.run(wants(numbered(40, 4000), "c")); // takes the place of the one without a key
    CHECK(bench.run(wants(numbered(40, 1000), "a")).reused.source == CacheSource::live);
    bench.run(wants(numbered(40, 5000), "d")); // takes b's place
    CHECK(bench.run(wants(numbered(40, 1000), "a")).reused.source == CacheSource::live);
    CHECK(bench.run(wants(numbered(40, 4000), "c")).reused.source == CacheSource::live);
    CHECK(bench.run(wants(numbered(40, 2000), "b")).reused.source == CacheSource::prefix);
}

TEST_CASE("kv_cache: no lease is given while all sequences are leased") {
    Bench      bench(1);
    const auto lease = bench.begin(wants(numbered(10)));
    CHECK(!bench.cache.acquire(wants(numbered(10))));
    bench.cache.release(lease, true);
    CHECK(bench.cache.acquire(wants(numbered(10))));
}

TEST_CASE("kv_cache: another key that shares the beginning restores it, even while the first one runs") {
    Bench      bench(2);
    const auto running = bench.begin(wants(numbered(200), "a"));
    const auto other   = bench.begin(wants(numbered(150) + numbered(50, 900), "b"));
    CHECK(other.reused.source == CacheSource::prefix);
    CHECK(other.reused.tokens == 150);
    CHECK(bench.decoder.sequences.at(1)[149] == 149);
    CHECK(bench.decoder.sequences.at(0).size() == 200);
    bench.cache.release(running, true);
    bench.cache.release(other, true);
}

TEST_CASE("kv_cache: what an evicted sequence held beyond its prompt can be continued, too") {
    Bench      bench(1);
    const auto lease  = bench.begin(wants(numbered(50), "a"));
    const auto answer = numbered(100);
    bench.compute(lease, answer, 50, 100); // the answer
    bench.cache.release(lease, true);
    bench.run(wants(numbered(50, 700), "b"));
    const auto next = bench.run(wants(numbered(100) + numbered(5, 300), "a"));
    CHECK(next.reused.source == CacheSource::prefix);
    CHECK(next.reused.tokens == 100);
}

TEST_CASE("kv_cache: without room for snapshots only live sequences are continued") {
    Bench bench(1, true, 0);
    bench.run(wants(numbered(100), "a"));
    bench.run(wants(numbered(100, 500), "b"));
    CHECK(bench.run(wants(numbered(100), "a")).reused.tokens == 0);
    CHECK(bench.decoder.saves == 0);
}

TEST_CASE("kv_cache: states under different adapters never mix") {
    Bench bench(1);
    bench.run(wants(numbered(100), "a", ""));
    CHECK(bench.run(wants(numbered(100), "a", "0*1;")).reused.tokens == 0);
    CHECK(bench.run(wants(numbered(100), "a", "0*0.5;")).reused.tokens == 0);
    CHECK(bench.run(wants(numbered(100), "a", "0*1;")).reused.source == CacheSource::prefix);
    CHECK(bench.run(wants(numbered(100), "a", "")).reused.source == CacheSource::prefix);
}

TEST_CASE("kv_cache: a snapshot that cannot be restored costs the time to compute, nothing else") {
    Bench bench(1);
    bench.run(wants(numbered(100), "a"));
    bench.run(wants(numbered(100, 500), "b"));
    bench.decoder.restores_fail = true;
    const auto lease            = bench.run(wants(numbered(100), "a"));
    CHECK(lease.reused.source == CacheSource::none);
    CHECK(bench.decoder.sequences.at(0) == numbered(100));
}

TEST_CASE("kv_cache: a snapshot that could not be restored gives way to a new one") {
    Bench bench(1);
    bench.run(wants(numbered(100), "a"));
    bench.run(wants(numbered(100, 500), "b"));
    bench.decoder.restores_fail = true;
    const size_t saves          = bench.decoder.saves;
    bench.run(wants(numbered(100), "a"));
    CHECK(bench.decoder.saves == saves + 1);
    CHECK(bench.store.stats().entries == 2);
}

TEST_CASE("kv_cache: after a shift only the part before the gap is anybody's prompt") {
    Bench      bench(1);
    const auto lease = bench.begin(wants(numbered(100), "a"));
    bench.cache.shift(lease, 20, 40);
    CHECK(bench.decoder.sequences.at(0).size() == 60);
    bench.compute(lease, numbered(61), 60, 61);
    bench.cache.release(lease, true);
    const auto next = bench.cache.acquire(wants(numbered(100), "a"));
    REQUIRE(next);
    CHECK(next->reused.source == CacheSource::prefix); // the snapshot from before the shift
    CHECK(next->reused.tokens == 99);
}

TEST_CASE("kv_cache: a release after a fault leaves nothing to continue from") {
    Bench      bench(1, true, 0);
    const auto lease = bench.begin(wants(numbered(100), "a"));
    bench.cache.release(lease, false);
    CHECK(bench.decoder.sequences.at(0).empty());
    CHECK(bench.run(wants(numbered(100), "a")).reused.tokens == 0);
}

TEST_CASE("kv_cache: where sequences cannot be trimmed, only whole states are continued") {
    Bench bench(1, /*trims*/ false);
    bench.run(wants(numbered(100), "a"));
    CHECK(bench.run(wants(numbered(150), "a")).reused.tokens == 100);
    CHECK(bench.run(wants(numbered(60) + numbered(60, 500), "a")).reused.tokens == 0);
    CHECK(bench.run(wants(numbered(110), "a")).reused.tokens == 100); // the first one's snapshot
}

TEST_CASE("kv_cache: where sequences cannot be trimmed, a checkpoint is wanted where prompts part") {
    Bench bench(1, /*trims*/ false);
    bench.run(wants(numbered(80) + numbered(40, 500)));
    const auto second = bench.cache.acquire(wants(numbered(80) + numbered(40, 600)));
    REQUIRE(second);
    CHECK(second->reused.tokens == 0);
    CHECK(second->checkpoint == 80);
    const auto prompt = numbered(80) + numbered(40, 600);
    bench.compute(*second, prompt, 0, 80);
    bench.cache.save(*second);
    bench.compute(*second, prompt, 80, 120);
    bench.cache.release(*second, true);
    const auto third = bench.run(wants(numbered(80) + numbered(40, 700)));
    CHECK(third.reused.source == CacheSource::prefix);
    CHECK(third.reused.tokens == 80);
}

TEST_CASE("kv_cache: where a window has moved on, a sequence is not cut to what is gone") {
    Bench bench(1);
    bench.run(wants(numbered(100), "a"));
    bench.decoder.gone_before[0] = 70;
    CHECK(bench.run(wants(numbered(80) + numbered(40, 500), "a")).reused.source == CacheSource::live);
    const auto back = bench.run(wants(numbered(40) + numbered(60, 600), "a"));
    CHECK(back.reused.source == CacheSource::prefix);
    CHECK(back.reused.tokens == 40);
}

TEST_CASE(
    "kv_cache: where saved states cannot be cut, live sequences still are, and checkpoints are wanted") {
    Bench bench(2, /*trims*/ false);
    bench.decoder.trims       = true;
    bench.decoder.saved_trims = false;
    bench.run(wants(numbered(100), "a"));
    CHECK(bench.run(wants(numbered(60) + numbered(60, 500), "a")).reused.tokens == 60);
    const auto other = bench.run(wants(numbered(60) + numbered(60, 600), "b"));
    CHECK(other.reused.tokens == 0);
    CHECK(other.checkpoint == 60);
}
