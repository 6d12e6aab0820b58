// A slot that repeats itself gets guesses, one that does not or whose guesses fail gets none; slots are apart.
#include "engine/prompt_drafter.h"

#include <doctest/doctest.h>

#include <vector>

using namespace headrace;

namespace {

constexpr size_t MOST = 4;

// Steps of one slot over a text that counts 0 to 9 again and again, or seems to; guesses accepted in all.
size_t live(PromptDrafter & drafter, size_t slot, int steps, bool right) {
    size_t accepted_in_all = 0;
    Token  next            = 0;
    for (int i = 0; i < steps; i++) {
        std::vector<Token> guesses;
        drafter.draft(slot, 100, guesses);
        CHECK(guesses.size() <= MOST);
        drafter.observe_pass(1, guesses.size(), 10 + static_cast<double>(guesses.size()));
        const size_t accepted = right ? guesses.size() : 0;
        for (size_t made = 0; made <= accepted; made++) {
            if (made < accepted) {
                CHECK(guesses[made] == next);
            }
            drafter.append(slot, next);
            next = (next + 1) % 10;
        }
        if (!guesses.empty()) {
            drafter.observe_guesses(slot, guesses.size(), accepted);
        }
        accepted_in_all += accepted;
    }
    return accepted_in_all;
}

const std::vector<Token> COUNTING = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

} // namespace

TEST_CASE("prompt_drafter: a text that repeats itself is guessed, up to the limit") {
    PromptDrafter drafter(MOST);
    drafter.begin(2, COUNTING);
    CHECK(live(drafter, 2, 100, true) > 300);
}

TEST_CASE("prompt_drafter: guesses that fail are given up") {
    PromptDrafter drafter(MOST);
    drafter.begin(0, COUNTING);
    live(drafter, 0, 50, false);
    std::vector<Token> guesses;
    drafter.draft(0, 100, guesses);
    CHECK(guesses.empty());
}

TEST_CASE("prompt_drafter: no more is guessed than there is room for, and nothing of a slot that has ended") {
    PromptDrafter drafter(MOST);
    drafter.begin(0, COUNTING);
    drafter.begin(1, std::vector<Token>{50, 51});
    live(drafter, 0, 60, true);
    std::vector<Token> guesses;
    drafter.draft(0, 1, guesses);
    CHECK(guesses.size() == 1);
    drafter.draft(1, 100, guesses);
    CHECK(guesses.empty());
    drafter.end(0);
    guesses.clear();
    drafter.draft(0, 100, guesses);
    CHECK(guesses.empty());
}
