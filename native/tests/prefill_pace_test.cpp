// How the prefill budget follows what tokens cost.
#include "engine/prefill_pace.h"

#include <doctest/doctest.h>

using headrace::PrefillPace;

TEST_CASE("prefill_pace: the budget settles where a pass takes the target time") {
    PrefillPace pace(200, 512);
    for (int i = 0; i < 20; i++) {
        const size_t tokens = pace.budget();
        pace.observe(tokens, 2.0 * static_cast<double>(tokens));
    }
    CHECK(pace.budget() == 100);
}

TEST_CASE("prefill_pace: the budget stays within the batch and never falls to nothing") {
    PrefillPace fast(200, 512), slow(200, 512), tiny(200, 4);
    for (int i = 0; i < 20; i++) {
        fast.observe(fast.budget(), 0.001);
        slow.observe(slow.budget(), 60000);
    }
    CHECK(fast.budget() == 512);
    CHECK(slow.budget() == 16);
    CHECK(tiny.budget() == 4);
}
