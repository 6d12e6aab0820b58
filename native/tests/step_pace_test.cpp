// How the prefill budget follows what passes cost, in each mode.
#include "engine/step_pace.h"

#include <doctest/doctest.h>

using namespace headrace;

namespace {

// A machine on which a pass costs a fixed part, and each token so much.
struct Machine {
    double fixed = 2, decode_token = 1, prefill_token = 0.8;

    double pass(size_t decoding, size_t prefill) const {
        return fixed + decode_token * static_cast<double>(decoding) +
               prefill_token * static_cast<double>(prefill);
    }
};

// Streams alone for a while, then beside a long prompt; gives the mean cost of a pass beside the prompt. Now
// and then the prompt is left out.
double beside_a_prompt(ScheduleMode mode, size_t streams, Machine machine = {}) {
    StepPace pace(mode, 512);
    for (int i = 0; i < 50; i++) {
        pace.observe(streams, 0, machine.pass(streams, 0));
    }
    double total = 0;
    int    mixed = 0;
    for (int i = 0; i < 200; i++) {
        const size_t tokens = pace.prefill_budget(streams);
        const double ms     = machine.pass(streams, tokens);
        pace.observe(streams, tokens, ms);
        total += i >= 100 && tokens > 0 ? ms : 0;
        mixed += i >= 100 && tokens > 0 ? 1 : 0;
    }
    CHECK(mixed >= 98);
    return total / mixed;
}

} // namespace

TEST_CASE("step_pace: alone, a prompt takes passes of the target time") {
    StepPace pace(ScheduleMode::balanced, 512);
    for (int i = 0; i < 20; i++) {
        const size_t tokens = pace.prefill_budget(0);
        pace.observe(0, tokens, 2.0 * static_cast<double>(tokens));
    }
    CHECK(pace.prefill_budget(0) == 100);
    CHECK(pace.prefill_ms(1000) == doctest::Approx(2000));
}

TEST_CASE("step_pace: the budget stays within the batch and never falls to nothing") {
    StepPace fast(ScheduleMode::balanced, 512), slow(ScheduleMode::latency, 512),
        tiny(ScheduleMode::latency, 4);
    for (int i = 0; i < 20; i++) {
        fast.observe(0, fast.prefill_budget(0), 0.001);
        slow.observe(0, slow.prefill_budget(0), 60000);
        slow.observe(1, 0, 1);
    }
    CHECK(fast.prefill_budget(0) == 512);
    CHECK(slow.prefill_budget(0) == 16);
    CHECK(slow.prefill_budget(1) == 1);
    CHECK(tiny.prefill_budget(0) == 4);
}

TEST_CASE("step_pace: latency slows streams by no more than a third") {
    for (const size_t streams : {1, 4, 8, 32}) {
        const double alone = Machine{}.pass(streams, 0);
        CHECK(beside_a_prompt(ScheduleMode::latency, streams) <= 1.31 * alone);
    }
}

TEST_CASE("step_pace: balanced takes 50 ms per pass, or as long again as the streams need") {
    CHECK(beside_a_prompt(ScheduleMode::balanced, 8) == doctest::Approx(50).epsilon(0.05));
    CHECK(beside_a_prompt(ScheduleMode::balanced, 98) == doctest::Approx(200).epsilon(0.05));
}

TEST_CASE("step_pace: throughput takes whole batches") {
    StepPace pace(ScheduleMode::throughput, 512);
    pace.observe(8, 0, 10);
    CHECK(pace.prefill_budget(8) == 512);
}

TEST_CASE("step_pace: one pass that was held up does not stop a prompt for long") {
    const Machine machine;
    StepPace      pace(ScheduleMode::latency, 512);
    for (int i = 0; i < 50; i++) {
        pace.observe(8, 0, machine.pass(8, 0));
        pace.observe(8, pace.prefill_budget(8), machine.pass(8, pace.prefill_budget(8)));
    }
    const size_t before = pace.prefill_budget(8);
    pace.observe(8, before, 5000);
    for (int i = 0; i < 20; i++) {
        pace.observe(8, pace.prefill_budget(8), machine.pass(8, pace.prefill_budget(8)));
    }
    CHECK(pace.prefill_budget(8) + 1 >= before);
}

TEST_CASE("step_pace: where prompts never cease, a pass now and then shows what streams cost alone") {
    const Machine machine;
    StepPace      pace(ScheduleMode::balanced, 512);
    pace.observe(0, 100, machine.pass(0, 100));
    double last = 0;
    for (int i = 0; i < 300; i++) {
        const size_t tokens = pace.prefill_budget(8);
        last                = machine.pass(8, tokens);
        pace.observe(8, tokens, last);
    }
    CHECK(last == doctest::Approx(50).epsilon(0.05)); // and not the few tokens of one who knows nothing
    CHECK(pace.decode_ms(8) == doctest::Approx(machine.pass(8, 0)));
}

TEST_CASE("step_pace: a pass that was held up does not make prompts seem hopeless") {
    StepPace pace(ScheduleMode::balanced, 512);
    pace.observe(0, 100, 200);
    pace.observe(0, 100, 5000);
    CHECK(pace.prefill_ms(100) == doctest::Approx(200));
    pace.observe(0, 100, 150);
    CHECK(pace.prefill_ms(100) == doctest::Approx(150));
}

TEST_CASE("step_pace: a mode is known by its name") {
    CHECK(schedule_mode("latency") == ScheduleMode::latency);
    CHECK(schedule_mode("balanced") == ScheduleMode::balanced);
    CHECK(schedule_mode("throughput") == ScheduleMode::throughput);
}

TEST_CASE("step_pace: others may take what prompts may") {
    StepPace latency(ScheduleMode::latency, 512), balanced(ScheduleMode::balanced, 512);
    for (int i = 0; i < 50; i++) {
        latency.observe(8, 0, 10);
        balanced.observe(8, 0, 10);
    }
    CHECK(latency.spare_ms(8) == doctest::Approx(3));
    CHECK(balanced.spare_ms(8) == doctest::Approx(40));
    CHECK(latency.spare_ms(0) > 100);
}
