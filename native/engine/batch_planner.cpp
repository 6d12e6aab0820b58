// The decisions behind batch_planner.h.
#include "engine/batch_planner.h"

#include "engine/bits.h"
#include "engine/slot.h"

#include <algorithm>

namespace headrace {

BatchPlanner::BatchPlanner(size_t slots, size_t batch_size) : batch_size_(batch_size) {
    plan_.contributions.reserve(std::max(slots, batch_size));
}

const BatchPlan & BatchPlanner::plan(std::span<const Slot> slots, uint64_t members, size_t prefill_budget) {
    plan_.contributions.clear();
    plan_.prefill_tokens = 0;
    plan_.decode_tokens  = 0;
    plan_.draft_tokens   = 0;

    uint64_t decoding = 0, prefilling = 0;
    each_bit(members, [&](size_t index) {
        decoding |= bit(index) * (slots[index].phase == SlotPhase::decode);
        prefilling |= bit(index) * (slots[index].phase == SlotPhase::prefill);
    });
    const size_t room = batch_size_ - std::min(count_bits(decoding), batch_size_);
    const size_t kept = prefilling == 0 ? 0 : std::min(prefill_budget, room);
    plan_decode(slots, decoding, room - kept);
    plan_prefill(slots, prefilling, std::min(prefill_budget, batch_size_ - plan_.contributions.size()));
    return plan_;
}

void BatchPlanner::plan_decode(std::span<const Slot> slots, uint64_t decoding, size_t drafts_at_most) {
    size_t       spare = drafts_at_most;
    const size_t first = turn_;
    for (size_t i = 0; i < slots.size(); i++) {
        const size_t index = (first + i) % slots.size();
        if (!(decoding & bit(index))) {
            continue;
        }
        if (plan_.decode_tokens == batch_size_) {
            turn_ = index;
            return;
        }
        const Slot & slot     = slots[index];
        auto         position = static_cast<int32_t>(slot.computed);
        const auto   add      = [&](ContributionKind kind, Token token) {
            plan_.contributions.push_back(
                {kind, static_cast<uint32_t>(index), slot.request.id, token, position++, true});
        };
        add(ContributionKind::decode, slot.last);
        plan_.decode_tokens++;
        const size_t drafts = std::min(slot.draft.size(), spare);
        for (size_t d = 0; d < drafts; d++) {
            add(ContributionKind::draft, slot.draft[d]);
        }
        spare -= drafts;
        plan_.draft_tokens += drafts;
    }
}

// Prompt tokens of this slot that one pass may take.
static size_t ready(const Slot & slot) {
    const size_t end = slot.stop_at > slot.computed ? slot.stop_at : slot.request.prompt.size();
    return end - slot.computed;
}

// Whether a goes before b when the second half of the budget is given away.
static bool goes_first(const Slot & a, const Slot & b) {
    const auto rank = [](const Slot & slot) {
        return std::tuple(-slot.request.options.priority, slot.request.prompt.size() - slot.computed,
                          slot.request.id);
    };
    return rank(a) < rank(b);
}

// True of every other plan in the long run, whichever of them one looks at: where sets of slots alternate (see
// Scheduler::choose_members), a turn in strict alternation would always fall to the same set.
bool BatchPlanner::is_fair_turn() {
    constexpr uint32_t golden = 0x9E3779B9; // 2^32 by the golden ratio
    return (small_plans_++ * golden >> 31) == 0;
}

void BatchPlanner::plan_prefill(std::span<const Slot> slots, uint64_t prefilling, size_t budget) {
    const size_t prompts = count_bits(prefilling);
    if (prompts == 0 || budget == 0) {
        return;
    }
    const size_t part = budget < prompts ? 0 : std::max<size_t>(budget / (2 * prompts), 1);
    const auto   take = [&](size_t index, size_t at_most) {
        const size_t count = std::min({at_most, budget, ready(slots[index]) - share_[index]});
        share_[index] += count;
        budget -= count;
    };
    share_.fill(0);
    if (part > 0) {
        each_bit(prefilling, [&](size_t index) { take(index, part); });
    } else if (is_fair_turn()) {
        const size_t first = prefill_turn_;
        for (size_t i = 0; i < slots.size() && budget > 0; i++) {
            const size_t index = (first + i) % slots.size();
            if (prefilling & bit(index)) {
                take(index, 1);
                prefill_turn_ = index + 1;
            }
        }
    }
    uint64_t waiting = prefilling;
    while (waiting != 0 && budget > 0) {
        size_t first = MAX_SLOTS;
        each_bit(waiting, [&](size_t index) {
            first = first == MAX_SLOTS || goes_first(slots[index], slots[first]) ? index : first;
        });
        take(first, budget);
        waiting &= ~bit(first);
    }
    each_bit(prefilling, [&](size_t index) { add_prefill(slots[index], index, share_[index]); });
}

void BatchPlanner::add_prefill(const Slot & slot, size_t index, size_t count) {
    const auto & prompt = slot.request.prompt;
    for (size_t i = 0; i < count; i++) {
        const size_t position = slot.computed + i;
        plan_.contributions.push_back({ContributionKind::prefill, static_cast<uint32_t>(index),
                                       slot.request.id, prompt[position], static_cast<int32_t>(position),
                                       position + 1 == prompt.size()});
    }
    plan_.prefill_tokens += count;
}

} // namespace headrace
