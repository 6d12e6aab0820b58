// Which tokens go into the next forward pass.
//
// A pure decision over the slots: nothing is computed or moved here. Every slot that decodes gets its
// token in every plan (they take turns only when there are more of them than the batch holds); prefill
// takes what is left, up to its budget, the oldest request first.
#pragma once

#include "engine/request.h"

#include <cstdint>
#include <span>
#include <vector>

namespace headrace {

struct Slot;

enum class ContributionKind : uint8_t { prefill, decode };

struct Contribution {
    ContributionKind kind;
    uint32_t         slot;
    RequestId        request;
    Token            token;
    int32_t          position;     // in the slot's sequence
    bool             wants_logits; // only where a token will be sampled
};

// Reused from tick to tick: clearing keeps the memory.
struct BatchPlan {
    std::vector<Contribution> contributions;
    size_t                    prefill_tokens = 0;
    size_t                    decode_tokens  = 0;
};

class BatchPlanner {
  public:
    // batch_size: contributions per plan at most.
    BatchPlanner(size_t slots, size_t batch_size);

    // occupied: bit i says that slots[i] holds a request. prefill_budget: prompt tokens this plan may take.
    const BatchPlan & plan(std::span<const Slot> slots, uint64_t occupied, size_t prefill_budget);

  private:
    void plan_decode(std::span<const Slot> slots, uint64_t occupied);
    void plan_prefill(std::span<const Slot> slots, uint64_t occupied, size_t budget);

    BatchPlan plan_;
    size_t    batch_size_;
    size_t    turn_ = 0; // the slot that decodes first when not all of them fit
};

} // namespace headrace
