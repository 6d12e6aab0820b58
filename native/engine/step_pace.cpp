// The estimates behind step_pace.h.
#include "engine/step_pace.h"

#include <algorithm>

namespace headrace {

namespace {

constexpr size_t FIRST_ALONE   = 16;  // prompt tokens of the first pass, when nothing is known
constexpr size_t FIRST_MIXED   = 4;   // the same beside running streams
constexpr double ALONE_MS      = 200; // a pass without streams: a cancel need not wait longer
constexpr double LATENCY_SHARE = 0.3; // of a pass that only decodes: leaves room for noise below one half
constexpr double BALANCED_MS   = 50;

// Where prompts never cease, one pass in so many is left to the streams, to see what they cost.
constexpr size_t PROBE_EVERY = 64;

// Small passes say little: their fixed cost dominates.
constexpr size_t SMALLEST = 16;

void blend(double & estimate, double seen, double weight) {
    estimate = estimate <= 0 ? seen : (1 - weight) * estimate + weight * seen;
}

} // namespace

ScheduleMode schedule_mode(std::string_view name) {
    return name == "latency"      ? ScheduleMode::latency
           : name == "throughput" ? ScheduleMode::throughput
                                  : ScheduleMode::balanced;
}

StepPace::StepPace(ScheduleMode mode, size_t batch_size)
    : mode_(mode), batch_size_(batch_size), decode_ms_(batch_size + 1) {}

double StepPace::decode_ms(size_t decoding) const {
    for (size_t near = std::min(decoding, batch_size_); near > 0; near--) {
        if (decode_ms_[near] > 0) {
            return decode_ms_[near];
        }
    }
    for (size_t near = decoding + 1; near <= batch_size_; near++) {
        if (decode_ms_[near] > 0) {
            return decode_ms_[near];
        }
    }
    return 0;
}

double StepPace::spare_ms(size_t decoding) const {
    const double decode = decode_ms(decoding);
    if (decoding == 0 || mode_ == ScheduleMode::throughput) {
        return ALONE_MS;
    }
    return mode_ == ScheduleMode::latency ? LATENCY_SHARE * decode : std::max(decode, BALANCED_MS - decode);
}

size_t StepPace::prefill_budget(size_t decoding) const {
    const auto tokens_in = [&](double ms, double per_token, size_t at_least) {
        const double tokens = std::min(ms / per_token, static_cast<double>(batch_size_));
        return std::clamp(static_cast<size_t>(tokens), std::min(at_least, batch_size_), batch_size_);
    };
    if (decoding == 0) {
        return alone_ms_ <= 0 ? std::min(FIRST_ALONE, batch_size_) : tokens_in(ALONE_MS, alone_ms_, SMALLEST);
    }
    if (mode_ == ScheduleMode::throughput) {
        return batch_size_;
    }
    if (decode_ms_[std::min(decoding, batch_size_)] <= 0 || mixed_ >= PROBE_EVERY) {
        return 0;
    }
    const double per_token = mixed_ms_ > 0 ? mixed_ms_ : alone_ms_;
    if (per_token <= 0) {
        return std::min(FIRST_MIXED, batch_size_);
    }
    return tokens_in(spare_ms(decoding), per_token, 1);
}

void StepPace::observe(size_t decoding, size_t prefill, double ms) {
    if (prefill == 0) {
        if (decoding > 0) {
            mixed_ = 0;
            blend(decode_ms_[std::min(decoding, batch_size_)], ms, 0.2);
        }
        return;
    }
    const double tokens = static_cast<double>(prefill);
    if (decoding == 0) {
        if (prefill >= SMALLEST) {
            blend(alone_ms_, ms / tokens, 0.3);
            least_ms_ = least_ms_ > 0 ? std::min(least_ms_, ms / tokens) : ms / tokens;
        }
        return;
    }
    mixed_++;
    if (const double decode = decode_ms(decoding); decode > 0) {
        // One pass that another program held up must not stop a prompt for long.
        const double ceiling = 4 * std::max(alone_ms_, decode / static_cast<double>(decoding));
        blend(mixed_ms_, std::clamp((ms - decode) / tokens, 0.1 * alone_ms_, ceiling), 0.2);
    }
}

} // namespace headrace
