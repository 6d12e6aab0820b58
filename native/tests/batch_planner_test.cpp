// The planner alone: what goes into a forward pass, over slots made by hand (case H2).
#include "engine/batch_planner.h"

#include "engine/slot.h"

#include "allocations.h"

#include <doctest/doctest.h>

#include <map>
#include <random>

using namespace headrace;

namespace {

Slot prefilling(RequestId id, size_t prompt, size_t computed = 0) {
    Slot slot;
    slot.phase          = SlotPhase::prefill;
    slot.request.id     = id;
    slot.request.prompt = std::vector<Token>(prompt, static_cast<Token>(id));
    slot.computed       = computed;
    return slot;
}

Slot decoding(RequestId id, size_t computed) {
    Slot slot  = prefilling(id, computed, computed);
    slot.phase = SlotPhase::decode;
    slot.last  = 7;
    return slot;
}

std::vector<Slot> make_slots(Slot first, Slot second = {}, Slot third = {}) {
    std::vector<Slot> slots;
    slots.push_back(std::move(first));
    slots.push_back(std::move(second));
    slots.push_back(std::move(third));
    return slots;
}

} // namespace

TEST_CASE("batch_planner: every slot that decodes gets its token beside a long prefill") {
    const auto   slots = make_slots(decoding(1, 5), prefilling(2, 1000), decoding(3, 9));
    BatchPlanner planner(3, 64);
    const auto & plan = planner.plan(slots, 0b111, 1000);
    CHECK(plan.decode_tokens == 2);
    CHECK(plan.prefill_tokens == 62);
    CHECK(plan.contributions.size() == 64);
    CHECK(plan.contributions[0].slot == 0);
    CHECK(plan.contributions[0].position == 5);
    CHECK(plan.contributions[1].slot == 2);
    CHECK(plan.contributions[2].kind == ContributionKind::prefill);
}

TEST_CASE("batch_planner: logits are wanted only where a token will be sampled") {
    const auto   slots = make_slots(decoding(1, 5), prefilling(2, 10, 6), prefilling(3, 10));
    BatchPlanner planner(3, 64);
    for (const Contribution & contribution : planner.plan(slots, 0b111, 64).contributions) {
        const bool last_of_prompt =
            contribution.kind == ContributionKind::prefill && contribution.position == 9;
        CHECK(contribution.wants_logits == (contribution.kind == ContributionKind::decode || last_of_prompt));
    }
}

static std::map<uint32_t, size_t> prompt_tokens(const BatchPlan & plan) {
    std::map<uint32_t, size_t> taken;
    for (const Contribution & contribution : plan.contributions) {
        taken[contribution.slot] += contribution.kind == ContributionKind::prefill ? 1 : 0;
    }
    return taken;
}

TEST_CASE("batch_planner: every prompt moves on, and the shortest rest gets most of the budget") {
    const auto   slots = make_slots(prefilling(1, 1000), prefilling(2, 40), prefilling(3, 900));
    BatchPlanner planner(3, 64);
    const auto & plan = planner.plan(slots, 0b111, 60);
    CHECK(plan.prefill_tokens == 60);
    CHECK(prompt_tokens(plan) == std::map<uint32_t, size_t>{{0, 10}, {1, 40}, {2, 10}});
}

TEST_CASE("batch_planner: a higher priority gets most of the budget, the others still move on") {
    auto urgent                     = prefilling(3, 900);
    urgent.request.options.priority = 1;
    const auto   slots              = make_slots(prefilling(1, 1000), prefilling(2, 40), std::move(urgent));
    BatchPlanner planner(3, 64);
    CHECK(prompt_tokens(planner.plan(slots, 0b111, 60)) ==
          std::map<uint32_t, size_t>{{0, 10}, {1, 10}, {2, 40}});
}

TEST_CASE("batch_planner: of a budget of one token the shortest rest gets one half, the other goes around") {
    const auto                 slots = make_slots(prefilling(9, 300), prefilling(2, 400), prefilling(5, 10));
    BatchPlanner               planner(3, 64);
    std::map<uint32_t, size_t> taken;
    for (int i = 0; i < 600; i++) {
        const auto one = prompt_tokens(planner.plan(slots, 0b111, 1));
        REQUIRE(one.size() == 1);
        taken[one.begin()->first] += one.begin()->second;
    }
    CHECK(taken[0] == doctest::Approx(100).epsilon(0.05));
    CHECK(taken[1] == doctest::Approx(100).epsilon(0.05));
    CHECK(taken[2] == doctest::Approx(400).epsilon(0.05));
}

TEST_CASE(
    "batch_planner: with a small budget every prompt moves on soon, also where sets of slots alternate") {
    std::vector<Slot> slots;
    for (RequestId id = 1; id <= 8; id++) {
        slots.push_back(prefilling(id, 1000));
    }
    for (const size_t sets : {1, 2, 3, 4}) {
        for (const size_t budget : {1, 3}) {
            BatchPlanner               planner(8, 64);
            std::map<uint32_t, size_t> last;
            for (size_t plan = 1; plan <= 2000; plan++) {
                uint64_t members = 0;
                for (size_t i = plan % sets; i < 8; i += sets) {
                    members |= uint64_t{1} << i;
                }
                for (const auto & [slot, count] : prompt_tokens(planner.plan(slots, members, budget))) {
                    last[slot] = count > 0 ? plan : last[slot];
                }
                for (uint32_t slot = 0; slot < 8; slot++) {
                    CHECK(plan - last[slot] <= 4 * 8 * sets);
                }
            }
        }
    }
}

TEST_CASE("batch_planner: a prompt stops at a checkpoint") {
    auto slots       = make_slots(prefilling(1, 100, 10));
    slots[0].stop_at = 30;
    BatchPlanner planner(3, 64);
    CHECK(planner.plan(slots, 0b001, 64).prefill_tokens == 20);
    slots[0].computed = 30;
    CHECK(planner.plan(slots, 0b001, 64).prefill_tokens == 64);
}

TEST_CASE("batch_planner: guesses stand behind their token, and leave room for prompts") {
    auto slots     = make_slots(decoding(1, 5), decoding(2, 9), prefilling(3, 100));
    slots[0].draft = {10, 11, 12, 13};
    slots[1].draft = {20, 21, 22, 23};
    BatchPlanner planner(3, 16);
    const auto & plan = planner.plan(slots, 0b111, 8);
    CHECK(plan.decode_tokens == 2);
    CHECK(plan.draft_tokens == 6);
    CHECK(plan.prefill_tokens == 8);
    CHECK(plan.contributions[0].token == 7);
    CHECK(plan.contributions[1].token == 10);
    CHECK(plan.contributions[1].kind == ContributionKind::draft);
    CHECK(plan.contributions[4].position == 9);
    CHECK(plan.contributions[5].slot == 1);
    CHECK(plan.contributions[7].token == 21);
}

TEST_CASE("batch_planner: planning allocates nothing") {
    std::vector<Slot> slots;
    for (RequestId id = 1; id <= MAX_SLOTS; id++) {
        slots.push_back(id % 3 == 0 ? prefilling(id, 500) : decoding(id, id));
        slots.back().draft = {1, 2, 3};
    }
    BatchPlanner planner(MAX_SLOTS, 256);
    const size_t before = allocations();
    for (int i = 0; i < 100; i++) {
        planner.plan(slots, ~uint64_t{0}, static_cast<size_t>(i) * 2);
    }
    CHECK(allocations() == before);
    const auto counted = std::make_unique<int>(1);
    CHECK(allocations() == before + 1); // the counter counts
}

TEST_CASE("batch_planner: slots take turns when more of them decode than the batch holds") {
    const auto              slots = make_slots(decoding(1, 1), decoding(2, 1), decoding(3, 1));
    BatchPlanner            planner(3, 2);
    std::map<uint32_t, int> turns;
    for (int i = 0; i < 30; i++) {
        const auto & plan = planner.plan(slots, 0b111, 10);
        CHECK(plan.contributions.size() == 2);
        for (const Contribution & contribution : plan.contributions) {
            turns[contribution.slot]++;
        }
    }
    CHECK(turns == std::map<uint32_t, int>{{0, 20}, {1, 20}, {2, 20}});
}

TEST_CASE("batch_planner: slots without a request are left out") {
    const auto   slots = make_slots(decoding(1, 1), decoding(2, 1), decoding(3, 1));
    BatchPlanner planner(3, 8);
    const auto & plan = planner.plan(slots, 0b010, 8);
    REQUIRE(plan.contributions.size() == 1);
    CHECK(plan.contributions[0].slot == 1);
}

TEST_CASE("batch_planner: random slots never overfill a batch, skip a position or repeat a decode") {
    std::mt19937 random(7);
    const auto   pick = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
    for (int round = 0; round < 2000; round++) {
        const size_t      batch = 1 + pick(40);
        std::vector<Slot> slots;
        for (size_t i = 0; i < 8; i++) {
            const size_t length = 1 + pick(50);
            slots.push_back(pick(2) ? decoding(i + 1, length) : prefilling(i + 1, length, pick(length)));
        }
        BatchPlanner            planner(slots.size(), batch);
        const auto              occupied = static_cast<uint64_t>(pick(256));
        const auto &            plan     = planner.plan(slots, occupied, pick(60));
        std::map<uint32_t, int> decodes;
        std::map<uint32_t, int> next;
        CHECK(plan.contributions.size() <= batch);
        for (const Contribution & contribution : plan.contributions) {
            const Slot & slot = slots[contribution.slot];
            CHECK((occupied >> contribution.slot & 1) == 1);
            CHECK(contribution.request == slot.request.id);
            CHECK(contribution.position == static_cast<int32_t>(slot.computed) + next[contribution.slot]++);
            if (contribution.kind == ContributionKind::decode) {
                CHECK(++decodes[contribution.slot] == 1);
                CHECK(slot.phase == SlotPhase::decode);
            }
        }
    }
}
