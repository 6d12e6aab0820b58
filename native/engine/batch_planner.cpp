// The decisions behind batch_planner.h.
#include "engine/batch_planner.h"

#include "engine/slot.h"

#include <algorithm>
#include <bit>

namespace headrace {

BatchPlanner::BatchPlanner(size_t slots, size_t batch_size) : batch_size_(batch_size) {
    plan_.contributions.reserve(std::max(slots, batch_size));
}

const BatchPlan & BatchPlanner::plan(std::span<const Slot> slots, uint64_t occupied, size_t prefill_budget) {
    plan_.contributions.clear();
    plan_.prefill_tokens = 0;
    plan_.decode_tokens  = 0;
    plan_decode(slots, occupied);
    plan_prefill(slots, occupied, std::min(prefill_budget, batch_size_ - plan_.decode_tokens));
    return plan_;
}

void BatchPlanner::plan_decode(std::span<const Slot> slots, uint64_t occupied) {
    const size_t first = turn_;
    for (size_t i = 0; i < slots.size(); i++) {
        const size_t index = (first + i) % slots.size();
        const Slot & slot  = slots[index];
        if (!(occupied >> index & 1) || slot.phase != SlotPhase::decode) {
            continue;
        }
        if (plan_.decode_tokens == batch_size_) {
            turn_ = index;
            return;
        }
        plan_.contributions.push_back({ContributionKind::decode, static_cast<uint32_t>(index),
                                       slot.request.id, slot.last, static_cast<int32_t>(slot.computed),
                                       true});
        plan_.decode_tokens++;
    }
}

void BatchPlanner::plan_prefill(std::span<const Slot> slots, uint64_t occupied, size_t budget) {
    uint64_t waiting = occupied;
    while (budget > 0) {
        const Slot * oldest = nullptr;
        for (uint64_t rest = waiting; rest != 0; rest &= rest - 1) {
            const Slot & slot = slots[static_cast<size_t>(std::countr_zero(rest))];
            if (slot.phase == SlotPhase::prefill && (!oldest || slot.request.id < oldest->request.id)) {
                oldest = &slot;
            }
        }
        if (!oldest) {
            return;
        }
        const auto   index = static_cast<size_t>(oldest - slots.data());
        const size_t left  = oldest->request.prompt.size() - oldest->computed;
        const size_t take  = std::min(left, budget);
        for (size_t i = 0; i < take; i++) {
            const size_t position = oldest->computed + i;
            plan_.contributions.push_back({ContributionKind::prefill, static_cast<uint32_t>(index),
                                           oldest->request.id, oldest->request.prompt[position],
                                           static_cast<int32_t>(position),
                                           position + 1 == oldest->request.prompt.size()});
        }
        plan_.prefill_tokens += take;
        budget -= take;
        waiting &= ~(uint64_t{1} << index);
    }
}

} // namespace headrace
