// The arithmetic behind speculation.h.
#include "engine/speculation.h"

#include <algorithm>

namespace headrace {

static constexpr size_t WARM_UP       = 3;    // plain steps before the first draft: their price is needed
static constexpr size_t FIRST_DRAFT   = 2;    // tokens, while no price but the plain one is known
static constexpr size_t TRIAL_DRAFT   = 1;    // tokens, to see whether drafts are accepted by now
static constexpr size_t FIRST_PAUSE   = 16;   // plain steps
static constexpr size_t LONGEST_PAUSE = 512;  // plain steps
static constexpr size_t REFRESH       = 64;   // a plain step after so many others: its price changes as well
static constexpr double LOSS_SHARE    = 0.03; // of the time spent, that trials may lose
static constexpr double LOSS_STEPS    = 2;    // plain steps that trials may lose on top
static constexpr double GAIN_STEPS    = 4;    // plain steps' worth of gain that count against later loss
static constexpr double WEIGHT        = 0.1;  // of a new observation in a running mean

static void mix(double & mean, double value, double weight) {
    mean += weight * (value - mean);
}

SpeculationGovernor::SpeculationGovernor(size_t max_draft) : prices_(max_draft + 1), pause_(FIRST_PAUSE) {}

void SpeculationGovernor::observe(size_t drafted, size_t accepted, double ms) {
    drafted  = std::min(drafted, prices_.size() - 1);
    accepted = std::min(accepted, drafted);
    account(drafted, accepted, ms);
    decide(drafted > 0);
}

void SpeculationGovernor::account(size_t drafted, size_t accepted, double ms) {
    totals_.drafted += drafted;
    totals_.accepted += accepted;
    total_ms_ += ms;
    mix(prices_[drafted], ms, prices_[drafted] > 0 ? WEIGHT : 1);
    if (drafted == 0) {
        // The first steps of a sequence can be far dearer than the rest.
        prices_[0] = plain_++ <= WARM_UP ? std::min(prices_[0], ms) : prices_[0];
        in_a_row_  = 0;
        return;
    }
    in_a_row_++;
    loss_ms_ += ms - prices_[0] * static_cast<double>(1 + accepted);
    loss_ms_ = std::max(loss_ms_, -GAIN_STEPS * prices_[0]);
    // The first token that is not accepted is a trial as well; those after it were never tried.
    for (size_t i = 0; i < std::min(accepted + 1, drafted); i++) {
        trials_++;
        mix(chance_, i < accepted ? 1 : 0, std::max(WEIGHT, 1.0 / static_cast<double>(trials_ + 1)));
    }
}

void SpeculationGovernor::decide(bool speculated) {
    limit_ = 0;
    if (plain_ < WARM_UP || prices_.size() == 1) {
        return;
    }
    const size_t wanted = best();
    if (wanted > 0) {
        pause_     = FIRST_PAUSE;
        remaining_ = FIRST_PAUSE;
        limit_     = in_a_row_ < REFRESH ? affordable(wanted) : 0;
        return;
    }
    if (speculated) {
        remaining_ = pause_;
        pause_     = std::min(2 * pause_, LONGEST_PAUSE);
    } else if (remaining_ > 0) {
        remaining_--;
    }
    limit_ = remaining_ == 0 ? affordable(TRIAL_DRAFT) : 0;
}

// Milliseconds of a step with so many drafted tokens. Unmeasured ones are drawn on the line from a plain step
// through the nearest that was measured.
double SpeculationGovernor::price(size_t drafted) const {
    if (prices_[drafted] > 0) {
        return prices_[drafted];
    }
    size_t nearest = 0;
    for (size_t i = 1; i < prices_.size(); i++) {
        const auto distance = [&](size_t k) { return k > drafted ? k - drafted : drafted - k; };
        if (prices_[i] > 0 && (nearest == 0 || distance(i) < distance(nearest))) {
            nearest = i;
        }
    }
    // At worst a drafted token costs as much as a step of its own.
    const double each =
        nearest == 0 ? prices_[0] : (prices_[nearest] - prices_[0]) / static_cast<double>(nearest);
    return prices_[0] + std::max(each, 0.0) * static_cast<double>(drafted);
}

// Tokens per millisecond.
double SpeculationGovernor::rate(size_t drafted) const {
    double tokens = 1, all = 1;
    for (size_t i = 0; i < drafted; i++) {
        all *= chance_;
        tokens += all;
    }
    return tokens / std::max(price(drafted), 1e-9);
}

size_t SpeculationGovernor::best() const {
    const size_t most = prices_.size() - 1;
    if (trials_ == 0) {
        return std::min(FIRST_DRAFT, most);
    }
    size_t best = 0;
    for (size_t drafted = 1; drafted <= most; drafted++) {
        if (rate(drafted) > rate(best)) {
            best = drafted;
        }
    }
    return best;
}

// The most up to `wanted` whose failure the allowance still bears.
size_t SpeculationGovernor::affordable(size_t wanted) const {
    const double allowance = LOSS_STEPS * prices_[0] + LOSS_SHARE * total_ms_ - loss_ms_;
    while (wanted > 0 && price(wanted) - prices_[0] > allowance) {
        wanted--;
    }
    return wanted;
}

} // namespace headrace
