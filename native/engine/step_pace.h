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

    // Prompt tokens for a pass in which `decoding` tokens of running streams are computed. 0 only now and then:
    // to learn what the streams cost by themselves, which no pass has shown lately.
    size_t prefill_budget(size_t decoding) const;

    // Milliseconds that other work may take beside so many running streams; what they are with nobody running.
    double spare_ms(size_t decoding) const;

    // A pass with these counts took so long.
    void observe(size_t decoding, size_t prefill, double ms);

    // The least time for so many prompt tokens, with nobody else running and at the best pace seen so far; 0
    // while nothing is known. What is refused for this reason could not have been done: one pass that was held
    // up must not have every request refused that asks for less time, and so nothing seen ever again.
    double prefill_ms(size_t tokens) const { return least_ms_ * static_cast<double>(tokens); }

    // Expected time per prompt token with nobody else running; 0 while nothing is known.
    double token_ms() const { return alone_ms_; }

    // Expected time of a pass that only decodes; 0 while nothing is known.
    double decode_ms(size_t decoding) const;

  private:
    ScheduleMode        mode_;
    size_t              batch_size_;
    std::vector<double> decode_ms_;    // of passes that only decode, by their number of tokens; 0: not seen
    double              alone_ms_ = 0; // per prompt token, in passes that only prefill
    double              least_ms_ = 0; // the least of these
    double              mixed_ms_ = 0; // per prompt token, in passes that decode too
    size_t              mixed_    = 0; // such passes since the last that only decoded
};

} // namespace headrace
