// How many prompt tokens the next forward pass may take, from what passes have cost so far.
//
// Prompts and running streams share each pass, so every prompt token delays every stream. A mode says how
// far; the cost is measured, never assumed. Knows nothing of slots: scheduler.cpp tells it the counts.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace headrace {

enum class ScheduleMode { latency, balanced, throughput };

ScheduleMode schedule_mode(std::string_view name);

class StepPace {
  public:
    // batch_size: tokens per pass at most.
    StepPace(ScheduleMode mode, size_t batch_size);

    // Prompt tokens for a pass in which `decoding` tokens of running streams are computed; at least 1.
    size_t prefill_budget(size_t decoding) const;

    // A pass with these counts took so long.
    void observe(size_t decoding, size_t prefill, double ms);

    // Expected time for so many prompt tokens with nobody else running; 0 while nothing is known.
    double prefill_ms(size_t tokens) const { return alone_ms_ * static_cast<double>(tokens); }

    // Expected time of a pass that only decodes; 0 while nothing is known.
    double decode_ms(size_t decoding) const;

  private:
    ScheduleMode        mode_;
    size_t              batch_size_;
    std::vector<double> decode_ms_;    // of passes that only decode, by their number of tokens; 0: not seen
    double              alone_ms_ = 0; // per prompt token, in passes that only prefill
    double              mixed_ms_ = 0; // per prompt token, in passes that decode too
};

} // namespace headrace
