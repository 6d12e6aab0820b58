// The store finds the best prefix there is, stays within its bytes, and gives out what was put in or nothing.
// Files: snapshot_folder_test.cpp and, for damage, snapshot_file_test.cpp.
#include "engine/prefix_store.h"

#include "temporary_folder.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

using namespace headrace;
namespace fs = std::filesystem;

namespace {

using Tokens = std::vector<Token>;
using Bytes  = std::vector<uint8_t>;

constexpr size_t OVERHEAD = 256; // what an entry takes beside its state and tokens

// `count` tokens that no sequence of another seed begins with.
Tokens sequence(Token seed, size_t count) {
    Tokens tokens;
    for (size_t i = 0; i < count; i++) {
        tokens.push_back(seed * 1000 + static_cast<Token>(i));
    }
    return tokens;
}

Tokens operator+(Tokens a, const Tokens & b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// A state that tells whose it is.
Bytes state_of(const Tokens & tokens, size_t bytes) {
    std::mt19937 random(static_cast<uint32_t>(tokens.size() * 31 + static_cast<size_t>(tokens.back())));
    Bytes        state(bytes);
    std::generate(state.begin(), state.end(), [&] { return static_cast<uint8_t>(random()); });
    return state;
}

struct Fixture {
    explicit Fixture(PrefixStoreSettings settings) : store(std::move(settings), [this] { return now; }) {}

    void insert(const Tokens & tokens, size_t bytes = 1000, const std::string & context = "") {
        store.insert(context, tokens, state_of(tokens, bytes));
    }

    // Tokens covered by the best match, without taking it.
    size_t covered(const Tokens & prompt, const std::string & context = "") {
        const auto match = store.find(context, prompt, {.at_most = prompt.size()});
        return match ? match->tokens : 0;
    }

    PrefixState take(const Tokens & prompt, const std::string & context = "") {
        const auto match = store.find(context, prompt, {.at_most = prompt.size()});
        return match ? store.take(*match) : nullptr;
    }

    bool has(const Tokens & tokens) { return covered(tokens) == tokens.size(); }

    double      now = 0;
    PrefixStore store;
};

PrefixStoreSettings memory(size_t bytes, bool trimmable = false) {
    PrefixStoreSettings settings;
    settings.memory_bytes = bytes;
    settings.trimmable    = trimmable;
    return settings;
}

// Room for exactly so many states of 1000 bytes for 100 tokens.
size_t room_for(size_t entries) {
    return entries * (1000 + 100 * sizeof(Token) + OVERHEAD);
}

PrefixStoreSettings on_disk(const TemporaryFolder & folder, const std::string & fingerprint = "model") {
    PrefixStoreSettings settings = memory(1 << 20);
    settings.disk_bytes          = 1 << 20;
    settings.folder              = folder.path.string();
    settings.fingerprint         = fingerprint;
    return settings;
}

void persist_all(PrefixStore & store) {
    int written = 0;
    while (store.persist_one()) {
        REQUIRE(++written < 10000);
    }
}

} // namespace

TEST_CASE("prefix_store: matches over thousands of entries agree with comparing them all") {
    for (const bool trimmable : {false, true}) {
        CAPTURE(trimmable);
        std::mt19937                            random(trimmable ? 3 : 2);
        Fixture                                 fixture(memory(size_t(64) << 20, trimmable));
        std::map<std::string, std::set<Tokens>> all;
        std::vector<Tokens>                     seen;
        const auto                              make = [&] {
            Tokens tokens;
            if (!seen.empty() && random() % 6 != 0) {
                tokens = seen[random() % seen.size()];
                tokens.resize(random() % (tokens.size() + 1));
            }
            for (size_t more = 1 + random() % 10; more > 0; more--) {
                tokens.push_back(static_cast<Token>(random() % 4));
            }
            return tokens;
        };
        for (int i = 0; i < 3000; i++) {
            const std::string context = random() % 3 == 0 ? "lora" : "";
            seen.push_back(make());
            fixture.insert(seen.back(), 16, context);
            all[context].insert(seen.back());
        }
        for (int i = 0; i < 1500; i++) {
            const std::string context  = random() % 3 == 0 ? "lora" : "";
            const Tokens      prompt   = make();
            const size_t      at_most  = prompt.size() - random() % 2;
            const size_t      at_least = 1 + random() % 4;
            size_t            best     = 0;
            for (const Tokens & tokens : all[context]) {
                const auto   end    = std::min({tokens.size(), prompt.size(), at_most});
                const auto   last   = tokens.begin() + static_cast<ptrdiff_t>(end);
                const size_t common = static_cast<size_t>(
                    std::mismatch(tokens.begin(), last, prompt.begin()).first - tokens.begin());
                if (trimmable || common == tokens.size()) {
                    best = std::max(best, common);
                }
            }
            const auto match = fixture.store.find(context, prompt, {at_least, at_most});
            REQUIRE((match ? match->tokens : 0) == (best >= at_least ? best : 0));
            if (match) {
                // The state is that of an entry which really begins with these tokens.
                const PrefixState state = fixture.store.take(*match);
                REQUIRE(state != nullptr);
                REQUIRE(std::any_of(all[context].begin(), all[context].end(), [&](const Tokens & tokens) {
                    return tokens.size() == match->length && *state == state_of(tokens, 16) &&
                           std::equal(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(match->tokens),
                                      prompt.begin());
                }));
            }
        }
    }
}

TEST_CASE("prefix_store: a longer entry serves only where states can be trimmed, the shortest such first") {
    const Tokens common = sequence(1, 10);
    for (const bool trimmable : {false, true}) {
        Fixture fixture(memory(1 << 20, trimmable));
        fixture.insert(common + sequence(2, 50));
        fixture.insert(common + sequence(3, 5));
        fixture.insert(common + sequence(4, 30));
        const auto match = fixture.store.find("", common + sequence(5, 5), {.at_most = 14});
        CHECK(match.has_value() == trimmable);
        if (match) {
            CHECK(match->tokens == 10);
            CHECK(match->length == 15);
        }
        const auto exact = fixture.store.find("", common + sequence(3, 5), {.at_most = 14});
        CHECK(exact.has_value() == trimmable); // the last token of the prompt must be computed
    }
}

TEST_CASE("prefix_store: contexts do not mix") {
    Fixture      fixture(memory(1 << 20, true));
    const Tokens tokens = sequence(1, 10);
    fixture.insert(tokens, 100, "fr");
    CHECK(fixture.covered(tokens, "fr") == 10);
    CHECK(fixture.covered(tokens, "") == 0);
    CHECK(fixture.store.wants("", tokens, 100));
    CHECK_FALSE(fixture.store.wants("fr", tokens, 100));
}

TEST_CASE("prefix_store: the bytes are never exceeded, whatever comes, and what is told is what is there") {
    for (const bool trimmable : {false, true}) {
        const size_t        limit = 50'000;
        std::mt19937        random(5);
        Fixture             fixture(memory(limit, trimmable));
        std::vector<Tokens> seen;
        for (int i = 0; i < 3000; i++) {
            Tokens tokens = seen.empty() || random() % 2 == 0 ? Tokens{} : seen[random() % seen.size()];
            tokens        = tokens + sequence(static_cast<Token>(random() % 9), 1 + random() % 20);
            tokens.resize(std::min<size_t>(tokens.size(), 60));
            seen.push_back(tokens);
            fixture.now += random() % 60'000;
            fixture.insert(tokens, 1 + random() % (i % 50 == 0 ? 2 * limit : 5000));
            fixture.take(seen[random() % seen.size()]);
            REQUIRE(fixture.store.stats().memory_bytes <= limit);
        }
        const PrefixStoreStats stats = fixture.store.stats();
        CHECK(stats.evictions > 100);
        CHECK(stats.hits > 100);
        CHECK(stats.memory_bytes > limit / 2);
        CHECK(stats.memory_bytes >= stats.entries * OVERHEAD);
        CHECK(stats.entries == stats.memory_entries);
    }
}

TEST_CASE(
    "prefix_store: what is larger than all the memory allowed, or empty, is not taken, and evicts nothing") {
    Fixture fixture(memory(room_for(1)));
    fixture.insert(sequence(1, 100));
    CHECK(fixture.has(sequence(1, 100)));
    CHECK_FALSE(fixture.store.wants("", sequence(2, 100), 1001));
    CHECK(fixture.store.wants("", sequence(2, 100), 1000));
    CHECK_FALSE(fixture.store.wants("", sequence(2, 100), ~size_t(0)));
    CHECK_FALSE(fixture.store.wants("", {}, 10));
    fixture.insert(sequence(2, 100), 1001);
    fixture.insert(sequence(2, 101), 1000);
    fixture.store.insert("", sequence(3, 10), {});
    fixture.store.insert("", {}, Bytes(10));
    CHECK(fixture.store.stats().entries == 1);
    CHECK(fixture.has(sequence(1, 100)));

    Fixture none(memory(0));
    none.insert(sequence(1, 1), 1);
    CHECK(none.store.stats().entries == 0);
}

TEST_CASE("prefix_store: a match whose entry has gone gives nothing, one that was taken stays whole") {
    Fixture      fixture(memory(room_for(1)));
    const Tokens tokens = sequence(1, 100);
    fixture.insert(tokens);
    const auto match = fixture.store.find("", tokens, {.at_most = 100});
    REQUIRE(match);
    const PrefixState taken = fixture.store.take(*match);
    fixture.insert(sequence(2, 100));
    CHECK(fixture.store.take(*match) == nullptr);
    CHECK(fixture.covered(tokens) == 0);
    CHECK(fixture.store.stats().hits == 1);
    CHECK(fixture.store.stats().misses == 2);
    CHECK(*taken == state_of(tokens, 1000));
    fixture.insert(tokens); // the same tokens again are another entry
    CHECK(fixture.store.take(*match) == nullptr);
    CHECK(fixture.take(tokens) != nullptr);
}

TEST_CASE("prefix_store: the least used goes first, then what was used longest ago") {
    Fixture fixture(memory(room_for(3)));
    for (const Token seed : {1, 2, 3}) {
        fixture.insert(sequence(seed, 100));
    }
    fixture.take(sequence(1, 100));
    fixture.take(sequence(3, 100));
    fixture.insert(sequence(4, 100));
    CHECK_FALSE(fixture.has(sequence(2, 100)));
    fixture.take(sequence(4, 100));
    fixture.now += 1000;
    fixture.take(sequence(3, 100));
    fixture.take(sequence(4, 100));
    fixture.now += 1000;
    fixture.take(sequence(1, 100));
    fixture.insert(sequence(5, 100)); // all have two hits; 3's and 4's are older than 1's
    CHECK(fixture.has(sequence(1, 100)));
    CHECK_FALSE(fixture.has(sequence(3, 100)));
    // One that was popular once gives way to what is new, in the end.
    fixture.now += 60 * 60'000;
    fixture.insert(sequence(6, 100));
    fixture.insert(sequence(7, 100));
    fixture.insert(sequence(8, 100));
    CHECK_FALSE(fixture.has(sequence(1, 100)));
    CHECK(fixture.has(sequence(8, 100)));
}

TEST_CASE("prefix_store: what saves fewer tokens per byte goes first") {
    Fixture fixture(memory(3 * room_for(1)));
    fixture.insert(sequence(1, 100), 1000);
    fixture.insert(sequence(2, 50), 1000 + 50 * sizeof(Token)); // as many bytes, for half the tokens
    fixture.insert(sequence(3, 100), 1000);
    fixture.insert(sequence(4, 100), 1000);
    CHECK(fixture.has(sequence(1, 100)));
    CHECK_FALSE(fixture.has(sequence(2, 50)));

    // Tokens that another entry on the same path would save anyway do not count.
    Fixture nested(memory(room_for(3)));
    nested.insert(sequence(1, 100), 1000);
    nested.insert(sequence(1, 60), 1000 + 40 * sizeof(Token));
    nested.insert(sequence(2, 90), 1000 + 10 * sizeof(Token));
    nested.insert(sequence(3, 100), 1000);
    CHECK_FALSE(nested.has(sequence(1, 100))); // 40 tokens more than the shorter one
    CHECK(nested.has(sequence(1, 60)));
}

TEST_CASE(
    "prefix_store: where states can be trimmed, one that a longer one covers goes first and is not wanted") {
    Fixture fixture(memory(room_for(3), true));
    fixture.insert(sequence(1, 90), 1000 + 10 * sizeof(Token));
    fixture.insert(sequence(2, 100));
    fixture.insert(sequence(1, 100));
    CHECK_FALSE(fixture.store.wants("", sequence(1, 50), 500));
    CHECK_FALSE(fixture.store.wants("", sequence(1, 100), 500));
    CHECK(fixture.store.wants("", sequence(1, 101), 500));
    fixture.insert(sequence(3, 100));
    const auto match = fixture.store.find("", sequence(1, 90), {.at_most = 90});
    REQUIRE(match);
    CHECK(match->length == 100); // the shorter one has gone, and nothing was lost
    CHECK(match->tokens == 90);

    Fixture untrimmable(memory(room_for(3)));
    untrimmable.insert(sequence(1, 100));
    CHECK(untrimmable.store.wants("", sequence(1, 50), 500));
}

TEST_CASE("prefix_store: a growing conversation keeps its longest state, and a popular prefix its coverage") {
    Fixture      fixture(memory(room_for(4), true));
    const Tokens system = sequence(1, 40);
    for (size_t turn = 1; turn <= 30; turn++) {
        fixture.now += 1000;
        fixture.insert(system + sequence(2, 2 * turn), 1000);
        CHECK(fixture.covered(system + sequence(2, 2 * turn)) == 40 + 2 * turn);
        // Others come by with the same system prompt, once each.
        fixture.take(system + sequence(static_cast<Token>(10 + turn), 5));
        fixture.insert(system + sequence(static_cast<Token>(10 + turn), 5), 1000);
        CHECK(fixture.covered(system) == 40);
    }
    CHECK(fixture.covered(system + sequence(2, 60)) == 100);
    CHECK(fixture.store.stats().evictions > 40);
}

TEST_CASE("prefix_store: a second session restores from the folder what the first has written") {
    const TemporaryFolder folder;
    {
        Fixture first(on_disk(folder));
        for (const Token seed : {1, 2, 3}) {
            first.insert(sequence(seed, 50), 2000, seed == 3 ? "lora" : "");
        }
        CHECK(first.store.persist_one());
        CHECK(first.store.persist_one());
        CHECK_FALSE(first.store.persist_one());
        CHECK_FALSE(first.store.persist_one());
        CHECK(first.store.stats().disk_entries == 3);
    }
    Fixture second(on_disk(folder));
    CHECK(second.store.stats().entries == 3);
    CHECK(second.store.stats().memory_bytes == 0);
    CHECK_FALSE(second.store.wants("", sequence(1, 50), 2000));
    const auto match = second.store.find("", sequence(1, 60), {.at_most = 59});
    REQUIRE(match);
    CHECK(match->on_disk);
    CHECK(match->tokens == 50);
    CHECK(*second.store.take(*match) == state_of(sequence(1, 50), 2000));
    CHECK(*second.take(sequence(3, 50), "lora") == state_of(sequence(3, 50), 2000));
    CHECK(second.store.stats().disk_hits == 2);
    CHECK_FALSE(second.store.find("", sequence(1, 60), {.at_most = 59})->on_disk);
    fs::remove_all(folder.path); // now from memory
    CHECK(*second.store.take(*match) == state_of(sequence(1, 50), 2000));
    CHECK(second.store.stats().hits == 3);
    CHECK(second.store.stats().disk_hits == 2);
    CHECK_FALSE(second.store.persist_one()); // nothing is written twice
}

TEST_CASE("prefix_store: another fingerprint finds nothing, and its files stay for their own model") {
    const TemporaryFolder folder;
    {
        Fixture first(on_disk(folder));
        first.insert(sequence(1, 50));
        persist_all(first.store);
    }
    Fixture other(on_disk(folder, "model replaced at the same path"));
    CHECK(other.covered(sequence(1, 50)) == 0);
    CHECK(other.store.stats().disk_bytes > 1000);
    Fixture again(on_disk(folder));
    CHECK(again.covered(sequence(1, 50)) == 50);
}

TEST_CASE("prefix_store: what leaves memory comes back from its file, and both limits hold") {
    const TemporaryFolder folder;
    PrefixStoreSettings   settings = on_disk(folder);
    settings.memory_bytes          = room_for(2);
    settings.disk_bytes            = 5 * 1500 + 100; // five files
    Fixture fixture(settings);
    for (Token seed = 1; seed <= 8; seed++) {
        fixture.insert(sequence(seed, 100), 1000);
        fixture.now += 1000;
        fixture.store.persist_one();
        CHECK(fixture.store.stats().memory_bytes <= settings.memory_bytes);
        CHECK(fixture.store.stats().disk_bytes <= settings.disk_bytes);
    }
    CHECK(fixture.store.stats().disk_entries == 5);
    CHECK(fixture.store.stats().entries == 5);
    CHECK(fixture.store.stats().disk_evictions == 3);
    CHECK_FALSE(fixture.has(sequence(3, 100)));
    for (Token seed = 4; seed <= 8; seed++) {
        const PrefixState state = fixture.take(sequence(seed, 100));
        REQUIRE(state != nullptr);
        CHECK(*state == state_of(sequence(seed, 100), 1000));
        CHECK(fixture.store.stats().memory_bytes <= settings.memory_bytes);
    }
    CHECK(fixture.store.stats().memory_entries == 2);
    CHECK_FALSE(fixture.store.persist_one());
}

TEST_CASE("prefix_store: a file that has been damaged or has gone is a miss, once") {
    const TemporaryFolder folder;
    {
        Fixture first(on_disk(folder));
        first.insert(sequence(1, 50));
        persist_all(first.store);
        first.insert(sequence(2, 50));
        persist_all(first.store);
    }
    Fixture    second(on_disk(folder));
    const auto match = second.store.find("", sequence(1, 50), {.at_most = 50});
    REQUIRE(match);
    for (const std::string & name : folder.names()) {
        Bytes bytes = read_bytes(folder.path / name);
        bytes[bytes.size() - 500] ^= 1;
        write_bytes(folder.path / name, bytes);
    }
    CHECK(second.store.take(*match) == nullptr);
    CHECK(second.store.stats().rejected_files == 1);
    CHECK(folder.names().size() == 1);
    CHECK(second.covered(sequence(1, 50)) == 0);
    fs::remove(folder.path / folder.names().front());
    CHECK(second.take(sequence(2, 50)) == nullptr);
    CHECK(second.store.stats().entries == 0);
    CHECK(second.store.stats().hits == 0);
    // And it can be stored anew.
    CHECK(second.store.wants("", sequence(1, 50), 1000));
    second.insert(sequence(1, 50));
    persist_all(second.store);
    CHECK(Fixture(on_disk(folder)).take(sequence(1, 50)) != nullptr);
}

TEST_CASE("prefix_store: a folder that cannot be written is told in the stats, and memory goes on") {
    PrefixStoreSettings settings = memory(1 << 20);
    settings.folder              = "/proc/headrace";
    settings.disk_bytes          = 1 << 20;
    Fixture fixture(settings);
    fixture.insert(sequence(1, 50));
    CHECK_FALSE(fixture.store.persist_one());
    CHECK(fixture.store.stats().disk_problem != "");
    CHECK(fixture.take(sequence(1, 50)) != nullptr);

    const TemporaryFolder folder;
    Fixture               cut(on_disk(folder));
    for (Token seed = 1; seed <= 9; seed++) {
        cut.insert(sequence(seed, 50));
    }
    fs::remove_all(folder.path);
    persist_all(cut.store);
    CHECK(cut.store.stats().disk_problem.find("No such file") != std::string::npos);
    CHECK(cut.store.stats().disk_entries == 0);
    CHECK(cut.take(sequence(9, 50)) != nullptr);
}

TEST_CASE("prefix_store: where states can be trimmed, only the longest of a path is written") {
    const TemporaryFolder folder;
    PrefixStoreSettings   settings = on_disk(folder);
    settings.trimmable             = true;
    Fixture fixture(settings);
    for (const size_t length : {10, 20, 30}) {
        fixture.insert(sequence(1, length));
    }
    persist_all(fixture.store);
    CHECK(folder.names().size() == 1);
    Fixture    second(settings);
    const auto match = second.store.find("", sequence(1, 15), {.at_most = 15});
    REQUIRE(match);
    CHECK(match->tokens == 15);
    CHECK(match->length == 30);
}

TEST_CASE("prefix_store: a session with less memory leaves files alone that it could not take") {
    const TemporaryFolder folder;
    {
        Fixture first(on_disk(folder));
        first.insert(sequence(1, 50), 5000);
        persist_all(first.store);
    }
    PrefixStoreSettings settings = on_disk(folder);
    settings.memory_bytes        = 4000;
    Fixture second(settings);
    CHECK(second.covered(sequence(1, 50)) == 0);
    CHECK(folder.names().size() == 1);
}
