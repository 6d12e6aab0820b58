// Drafts are what really followed the latest earlier occurrence, compared with a search of the whole sequence.
#include "engine/ngram_drafter.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

using namespace headrace;

namespace {

using Tokens = std::vector<Token>;

NgramDrafter fed(const Tokens & tokens) {
    NgramDrafter drafter;
    for (Token token : tokens) {
        drafter.append(token);
    }
    return drafter;
}

Tokens draft(const NgramDrafter & drafter, size_t count) {
    const auto drafted = drafter.draft(count);
    return {drafted.begin(), drafted.end()};
}

// The same by looking everywhere.
Tokens search(const Tokens & tokens, size_t count) {
    for (size_t length = NgramDrafter::LONGEST; length >= NgramDrafter::SHORTEST; length--) {
        for (size_t end = tokens.size(); end-- > length;) {
            if (tokens.size() > length &&
                std::equal(tokens.end() - static_cast<std::ptrdiff_t>(length), tokens.end(),
                           tokens.begin() + static_cast<std::ptrdiff_t>(end - length))) {
                const auto from = tokens.begin() + static_cast<std::ptrdiff_t>(end);
                return {from, from + static_cast<std::ptrdiff_t>(std::min(count, tokens.size() - end))};
            }
        }
        if (tokens.size() > length &&
            std::equal(tokens.end() - static_cast<std::ptrdiff_t>(length), tokens.end(), tokens.begin())) {
            return {tokens.begin() + static_cast<std::ptrdiff_t>(length),
                    tokens.begin() + static_cast<std::ptrdiff_t>(std::min(length + count, tokens.size()))};
        }
    }
    return {};
}

} // namespace

TEST_CASE("ngram_drafter: what followed the same tokens before is drafted, and no more than asked for") {
    const NgramDrafter drafter = fed({1, 2, 3, 4, 5, 6, 7, 9, 2, 3, 4});
    CHECK(draft(drafter, 3) == Tokens{5, 6, 7});
    CHECK(draft(drafter, 1) == Tokens{5});
    CHECK(draft(drafter, 0) == Tokens{});
}

TEST_CASE("ngram_drafter: the draft ends where the known tokens end") {
    CHECK(draft(fed({1, 2, 3, 1, 2}), 10) == Tokens{3, 1, 2});
    CHECK(draft(fed({7, 7, 7}), 10) == Tokens{7});
}

TEST_CASE("ngram_drafter: nothing is drafted for tokens that come for the first time") {
    CHECK(draft(fed({}), 5).empty());
    CHECK(draft(fed({1}), 5).empty());
    CHECK(draft(fed({1, 2}), 5).empty());
    CHECK(draft(fed({1, 2, 3, 2}), 5).empty());
}

TEST_CASE("ngram_drafter: a longer match counts more than a later one, and of equals the latest") {
    CHECK(draft(fed({1, 2, 3, 4, 50, 9, 3, 4, 60, 8, 1, 2, 3, 4}), 1) == Tokens{50});
    CHECK(draft(fed({3, 4, 50, 9, 3, 4, 60, 8, 3, 4}), 1) == Tokens{60});
}

TEST_CASE("ngram_drafter: drafts agree with a search, but for what collides") {
    std::mt19937 random(7);
    for (Token vocabulary : {2, 5, 30}) {
        NgramDrafter drafter;
        Tokens       tokens;
        int          missed = 0;
        for (int i = 0; i < 1500; i++) {
            tokens.push_back(static_cast<Token>(random()) & 0x7fffffff);
            tokens.back() %= vocabulary;
            drafter.append(tokens.back());
            const Tokens drafted = draft(drafter, 6);
            // Whatever is drafted did follow the last SHORTEST tokens somewhere.
            if (!drafted.empty()) {
                Tokens claim(tokens.end() - NgramDrafter::SHORTEST, tokens.end());
                claim.insert(claim.end(), drafted.begin(), drafted.end());
                CHECK(std::search(tokens.begin(), tokens.end(), claim.begin(), claim.end()) != tokens.end());
            }
            missed += drafted != search(tokens, 6);
        }
        CAPTURE(vocabulary);
        CHECK(missed < 100);
    }
}

TEST_CASE("ngram_drafter: the distant past is forgotten, the recent past is not, however long it runs") {
    constexpr Token HISTORY = 100;
    NgramDrafter    drafter(HISTORY);
    for (Token token = 0; token < 5000; token++) {
        drafter.append(token);
    }
    for (Token token : {10, 11, 12, 13}) {
        drafter.append(token);
    }
    CHECK(drafter.draft(4).empty());
    for (Token token : {4990, 4991, 4992, 4993}) {
        drafter.append(token);
    }
    CHECK(draft(drafter, 4) == Tokens{4994, 4995, 4996, 4997});
}
