// Which tokens go into the next forward pass.
//
// A pure decision over the slots: nothing is computed or moved here. Every slot that decodes gets its
// token in every plan (they take turns only when there are more of them than the batch holds); guesses of
// speculative decoding take what is left, prefill its budget of the rest.
//
// Prompts share that budget: each moves on by its part of one half; the other half goes to the highest
// priority and there to the shortest rest, which keeps the average wait for a first token low. Of a budget
// smaller than their number, each half gets about every other plan, and in the first prompts take turns.
#pragma once

#include "engine/request.h"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace headrace {

struct Slot;

constexpr size_t MAX_SLOTS = 64;

// draft: a token that is guessed to follow, computed to be verified.
enum class ContributionKind : uint8_t { prefill, decode, draft };

struct Contribution {
    ContributionKind kind;
    uint32_t         slot;
    RequestId        request;
    Token            token;
    int32_t          position;     // in the slot's sequence
    bool             wants_logits; // only where a token will be sampled
};

// Reused from tick to tick: clearing keeps the memory. Contributions of a slot stand together.
struct BatchPlan {
    std::vector<Contribution> contributions;
    size_t                    prefill_tokens = 0;
    size_t                    decode_tokens  = 0;
    size_t                    draft_tokens   = 0;
};

class BatchPlanner {
  public:
    // batch_size: contributions per plan at most. At most MAX_SLOTS slots.
    BatchPlanner(size_t slots, size_t batch_size);

    // members: bit i says that slots[i] takes part. prefill_budget: prompt tokens this plan may take.
    // Allocates nothing.
    const BatchPlan & plan(std::span<const Slot> slots, uint64_t members, size_t prefill_budget);

  private:
    void plan_decode(std::span<const Slot> slots, uint64_t decoding, size_t drafts_at_most);
    void plan_prefill(std::span<const Slot> slots, uint64_t prefilling, size_t budget);
    bool is_fair_turn();
    void add_prefill(const Slot & slot, size_t index, size_t count);

    BatchPlan                     plan_;
    size_t                        batch_size_;
    size_t                        turn_         = 0; // the slot that decodes first when not all of them fit
    size_t                        prefill_turn_ = 0; // the same for prompts
    uint32_t                      small_plans_  = 0; // plans whose budget was too small to be halved
    std::array<size_t, MAX_SLOTS> share_{};          // prompt tokens of each slot in the plan being made
};

} // namespace headrace
