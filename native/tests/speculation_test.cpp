// Simulated worlds: what a step costs, how often drafts are right; and what the governor makes of them.
#include "engine/speculation.h"

#include <doctest/doctest.h>

#include <functional>
#include <random>

using namespace headrace;

namespace {

constexpr size_t MOST = 8;

struct World {
    double                        slope  = 0.1; // price of a drafted token, in plain steps
    double                        noise  = 0.1; // of a price, up and down
    double                        plain  = 10;  // ms
    std::function<double(size_t)> chance = [](size_t) { return 0.0; }; // of acceptance, by tokens made
    double                        offers = 1; // share of the steps in which the drafter has something
    unsigned                      seed   = 1;
    double                        first  = 1; // price of the first step, in plain ones
};

struct Outcome {
    double            ms    = 0;
    double            plain = 0; // ms of the same tokens, one by one
    SpeculationTotals totals;

    double speed() const { return plain / ms; }
};

Outcome live(const World & world, size_t tokens, size_t most = MOST) {
    std::mt19937                           random(world.seed);
    std::uniform_real_distribution<double> uniform(0, 1);
    SpeculationGovernor                    governor(most);
    Outcome                                outcome;
    for (size_t made = 0; made < tokens;) {
        const size_t drafted  = uniform(random) < world.offers ? governor.draft_limit() : 0;
        size_t       accepted = 0;
        while (accepted < drafted && uniform(random) < world.chance(made + accepted)) {
            accepted++;
        }
        const double luck = 1 + world.noise * (2 * uniform(random) - 1);
        const double ms   = world.plain * (1 + world.slope * static_cast<double>(drafted)) * luck;
        governor.observe(drafted, accepted, made == 0 ? ms * world.first : ms);
        outcome.ms += ms;
        outcome.plain += world.plain * static_cast<double>(1 + accepted);
        made += 1 + accepted;
    }
    outcome.totals = governor.totals();
    return outcome;
}

World world_of(double chance, double slope, unsigned seed = 1) {
    World world;
    world.slope  = slope;
    world.chance = [chance](size_t) { return chance; };
    world.seed   = seed;
    return world;
}

} // namespace

TEST_CASE("speculation: where drafts never match, no more than 5 % is lost, however dear they are") {
    for (size_t tokens : {100, 300, 3000}) {
        for (double slope : {0.02, 0.1, 0.3, 1.0, 2.0}) {
            for (unsigned seed = 0; seed < 20; seed++) {
                World world           = world_of(0, slope, seed);
                world.noise           = 0;
                const Outcome outcome = live(world, tokens);
                CAPTURE(tokens);
                CAPTURE(slope);
                CHECK(outcome.ms <= 1.05 * outcome.plain);
                CHECK(outcome.totals.accepted == 0);
            }
        }
    }
}

TEST_CASE("speculation: whatever the chance and the price, plain decoding is not beaten by more than 5 %") {
    for (double chance : {0.0, 0.2, 0.5, 0.8, 0.95}) {
        for (double slope : {0.02, 0.2, 0.6, 1.0}) {
            for (double offers : {0.1, 1.0}) {
                World world           = world_of(chance, slope, 3);
                world.offers          = offers;
                const Outcome outcome = live(world, 2000);
                CAPTURE(chance);
                CAPTURE(slope);
                CHECK(outcome.speed() > 0.95);
            }
        }
    }
}

TEST_CASE("speculation: where drafts always match, nearly all that is possible is gained") {
    for (double slope : {0.02, 0.1, 0.3}) {
        const Outcome outcome  = live(world_of(1, slope), 3000);
        const double  possible = (1 + MOST) / (1 + slope * MOST);
        CAPTURE(slope);
        CHECK(outcome.speed() > 0.9 * possible);
        CHECK(outcome.totals.accepted == outcome.totals.drafted);
        CHECK(outcome.totals.accepted > 2400);
    }
}

TEST_CASE("speculation: drafts are kept short where they often fail") {
    const Outcome outcome = live(world_of(0.6, 0.25), 5000);
    // The best k here is 1 or 2: 1.6 / 1.25 = 1.28 and 1.96 / 1.5 = 1.31 times the plain speed.
    CHECK(outcome.speed() > 1.15);
    CHECK(outcome.totals.drafted < 2.5 * 5000);
}

TEST_CASE("speculation: it is given up where drafts cost what they bring, and seldom tried again") {
    const Outcome outcome = live(world_of(0.9, 1.0), 5000);
    CHECK(outcome.totals.drafted < 250);
    const Outcome never = live(world_of(0, 0.1), 5000);
    CHECK(never.totals.drafted < 100);
}

TEST_CASE("speculation: a first step that is far dearer than the others misleads nobody") {
    World world           = world_of(0.6, 0.8);
    world.first           = 30;
    const Outcome outcome = live(world, 300);
    CHECK(outcome.speed() > 0.95);
}

TEST_CASE("speculation: a text that begins to repeat itself late is found out") {
    World world;
    world.chance          = [](size_t made) { return made < 1500 ? 0.0 : 0.95; };
    const Outcome outcome = live(world, 6000);
    CHECK(outcome.totals.accepted > 2500);
    CHECK(outcome.speed() > 1.8);
}

TEST_CASE("speculation: a text that ceases to repeat itself is found out too") {
    World world;
    world.chance        = [](size_t made) { return made < 1500 ? 1.0 : 0.0; };
    const Outcome first = live(world, 1500), both = live(world, 6000);
    CHECK(both.ms - first.ms < 1.05 * (both.plain - first.plain));
}

TEST_CASE("speculation: without leave to draft it never does, and a first step is never drafted for") {
    CHECK(live(world_of(1, 0.1), 500, 0).totals.drafted == 0);
    CHECK(SpeculationGovernor(8).draft_limit() == 0);
}

TEST_CASE("speculation: more is never asked for than allowed") {
    SpeculationGovernor governor(3);
    for (int i = 0; i < 200; i++) {
        CHECK(governor.draft_limit() <= 3);
        governor.observe(governor.draft_limit(), governor.draft_limit(), 10);
    }
    CHECK(governor.totals().accepted > 300);
}
