// How many prompt tokens the next forward pass may take, from what they have cost so far.
//
// Keeps one pass short enough that a cancel, or another slot's next token, need not wait long for it.
#pragma once

#include <algorithm>
#include <cstddef>

namespace headrace {

class PrefillPace {
  public:
    // target_ms: how long a pass that only prefills should take. largest: tokens per pass at most.
    PrefillPace(double target_ms, size_t largest) : target_ms_(target_ms), largest_(largest) {}

    size_t budget() const {
        if (ms_per_token_ <= 0) {
            return std::min(FIRST, largest_);
        }
        const double tokens = target_ms_ / ms_per_token_;
        return std::clamp(static_cast<size_t>(tokens), std::min(SMALLEST, largest_), largest_);
    }

    // A pass over `tokens` prompt tokens took `ms`. Small passes say little: their fixed cost dominates.
    void observe(size_t tokens, double ms) {
        if (tokens < SMALLEST) {
            return;
        }
        const double cost = ms / static_cast<double>(tokens);
        ms_per_token_     = ms_per_token_ <= 0 ? cost : 0.7 * ms_per_token_ + 0.3 * cost;
    }

  private:
    static constexpr size_t FIRST    = 16;
    static constexpr size_t SMALLEST = 16;

    double target_ms_;
    size_t largest_;
    double ms_per_token_ = 0;
};

} // namespace headrace
