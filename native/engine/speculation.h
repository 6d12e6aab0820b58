// How many tokens to draft per step, if any: by what drafting has brought and cost so far.
//
// Counterpart: a drafter (ngram_drafter.h, or a small model) proposes as many, the scheduler has the model check
// them and tells here what came of it. Pure and without a clock: it is told milliseconds.
#pragma once

#include <cstddef>
#include <vector>

namespace headrace {

struct SpeculationTotals {
    size_t drafted  = 0; // tokens proposed to the model
    size_t accepted = 0; // of them, those that it would have chosen itself
};

// A step makes one token by itself, and checks k drafted ones along the way for a higher price. Governed by the
// measured price of each k and the measured chance that a drafted token is accepted, the k is used that gives the
// most tokens per millisecond. Where that is 0, trials are repeated after pauses that double.
//
// What speculation may lose against plain decoding, ever, is 3 % of the time spent and two plain steps.
class SpeculationGovernor {
  public:
    // max_draft: tokens to draft per step, at most; 0 never drafts.
    explicit SpeculationGovernor(size_t max_draft);

    // Tokens to draft for the next step, at most; 0: none.
    size_t draft_limit() const { return limit_; }

    // A step of this sequence is done, which took `ms` with its drafting: of `drafted` tokens `accepted` were
    // right. A step in which the drafter had nothing to propose has 0 of both. Where a pass serves several
    // sequences, `ms` is that of the whole pass;
    // passes that also prefill are left out, their price says nothing.
    void observe(size_t drafted, size_t accepted, double ms);

    const SpeculationTotals & totals() const { return totals_; }

  private:
    double price(size_t drafted) const;
    double rate(size_t drafted) const;
    size_t best() const;
    size_t affordable(size_t wanted) const;
    void   account(size_t drafted, size_t accepted, double ms);
    void   decide(bool speculated);

    size_t              limit_ = 0;
    std::vector<double> prices_; // ms of a step, by drafted tokens; 0: not known yet
    double              chance_    = 0.5;
    size_t              trials_    = 0; // tokens behind `chance_`
    double              total_ms_  = 0;
    double              loss_ms_   = 0; // against plain decoding; negative: gain
    size_t              plain_     = 0; // plain steps so far
    size_t              in_a_row_  = 0; // speculating steps since the last plain one
    size_t              pause_     = 0; // plain steps from one trial to the next
    size_t              remaining_ = 0; // of the pause
    SpeculationTotals   totals_;
};

} // namespace headrace
