// The pass over the logits, and the thresholds, behind logit_watch.h.
#include "engine/logit_watch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>

namespace headrace {

namespace {

constexpr float INFINITE = std::numeric_limits<float>::infinity();
constexpr float LARGEST  = std::numeric_limits<float>::max();

constexpr size_t LANES = 16; // independent sums: a compiler may not reorder additions into vectors by itself

struct Lanes {
    std::array<float, LANES>    sum{};
    std::array<float, LANES>    squares{};
    std::array<float, LANES>    minimum;
    std::array<float, LANES>    maximum;
    std::array<uint32_t, LANES> finite{};
    std::array<uint32_t, LANES> positive{};
    std::array<uint32_t, LANES> not_numbers{};
    std::array<uint32_t, LANES> infinite{};

    Lanes() {
        minimum.fill(INFINITE);
        maximum.fill(-INFINITE);
    }

    // Written without branches, and with comparisons that are false for NaN.
    void add(size_t lane, float logit, float origin) {
        const bool  finite_one = std::fabs(logit) <= LARGEST;
        const float distance   = finite_one ? logit - origin : 0.0f;
        const float low        = finite_one ? logit : INFINITE;
        const float high       = finite_one ? logit : -INFINITE;
        sum[lane] += distance;
        squares[lane] += distance * distance;
        minimum[lane] = low < minimum[lane] ? low : minimum[lane];
        maximum[lane] = high > maximum[lane] ? high : maximum[lane];
        finite[lane] += finite_one ? 1 : 0;
        positive[lane] += high > 0.0f ? 1 : 0;
        not_numbers[lane] += logit != logit ? 1 : 0;
        infinite[lane] += logit > LARGEST ? 1 : 0;
    }
};

Lanes scan_block(const float * logits, size_t count, float origin) {
    Lanes  lanes;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        for (size_t lane = 0; lane < LANES; lane++) {
            lanes.add(lane, logits[i + lane], origin);
        }
    }
    for (size_t lane = 0; i < count; i++, lane++) {
        lanes.add(lane, logits[i], origin);
    }
    return lanes;
}

template <class Number> double total(const std::array<Number, LANES> & lanes) {
    double sum = 0;
    for (const Number lane : lanes) {
        sum += static_cast<double>(lane);
    }
    return sum;
}

size_t count_of(const std::array<uint32_t, LANES> & lanes) {
    return static_cast<size_t>(total(lanes));
}

} // namespace

LogitScan scan_logits(std::span<const float> logits, std::vector<float> * block_maxima) {
    LogitScan scan;
    scan.count   = logits.size();
    scan.minimum = INFINITE;
    scan.maximum = -INFINITE;
    if (block_maxima) {
        block_maxima->clear();
    }
    // Sums of distances from one of the values: a row around 300 would lose its deviation to rounding.
    const auto  known  = std::find_if(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); });
    const float origin = known == logits.end() ? 0.0f : *known;
    double      sum = 0, squares = 0;
    size_t      best_block = 0;
    for (size_t begin = 0; begin < logits.size(); begin += SCAN_BLOCK) {
        const size_t length = std::min(SCAN_BLOCK, logits.size() - begin);
        const Lanes  lanes  = scan_block(logits.data() + begin, length, origin);
        const float  high   = *std::max_element(lanes.maximum.begin(), lanes.maximum.end());
        if (high > scan.maximum) {
            scan.maximum = high;
            best_block   = begin;
        }
        scan.minimum = std::min(scan.minimum, *std::min_element(lanes.minimum.begin(), lanes.minimum.end()));
        sum += total(lanes.sum);
        squares += total(lanes.squares);
        scan.finite += count_of(lanes.finite);
        scan.positive += count_of(lanes.positive);
        scan.not_numbers += count_of(lanes.not_numbers);
        scan.infinite += count_of(lanes.infinite);
        if (block_maxima) {
            block_maxima->push_back(high);
        }
    }
    if (scan.finite == 0) {
        scan.minimum = scan.maximum = 0;
        return scan;
    }
    const auto   first    = logits.begin() + static_cast<ptrdiff_t>(best_block);
    const double finite   = static_cast<double>(scan.finite);
    const double distance = sum / finite;
    scan.likeliest        = static_cast<Token>(std::find(first, logits.end(), scan.maximum) - logits.begin());
    scan.mean             = origin + distance;
    scan.deviation        = std::sqrt(std::max(0.0, squares / finite - distance * distance));
    return scan;
}

std::vector<std::pair<Token, float>> highest_logits(std::span<const float> logits, size_t count) {
    std::vector<std::pair<Token, float>> highest;
    for (size_t i = 0; count > 0 && i < logits.size(); i++) {
        const float logit = logits[i];
        const bool  full  = highest.size() == count;
        if (!(logit > -INFINITE) || (full && logit <= highest.back().second)) {
            continue;
        }
        if (full) {
            highest.pop_back();
        }
        const auto place = std::find_if(highest.begin(), highest.end(),
                                        [&](const auto & other) { return logit > other.second; });
        highest.insert(place, {static_cast<Token>(i), logit});
    }
    return highest;
}

// An honest row spreads over several units: 15 to 40 from lowest to highest in the models calibrated on.
constexpr double FLAT_SPREAD = 1e-5; // of the largest magnitude

// Case G13 had a mean of +16 with 80 % of the logits positive, so a deviation of at least 8 (Cantelli's
// inequality). Softmax does not care for a shift, so no single figure is enough: models whose logits are all
// negative (GPT-2) have no positive mean, and those far above 0 (BLOOM, around +300) deviate by a few units
// like any other. All three are beyond the thresholds only where the scale itself is broken.
constexpr double SHAPE_MEAN      = 8;
constexpr double SHAPE_POSITIVE  = 0.7; // share
constexpr double SHAPE_DEVIATION = 7;

HealthWatch read_health_watch(std::string_view name) {
    return name == "off" ? HealthWatch::off : name == "numbers" ? HealthWatch::numbers : HealthWatch::full;
}

std::optional<LogitFault> judge(const LogitScan & scan, HealthWatch watch) {
    if (watch == HealthWatch::off) {
        return std::nullopt;
    }
    if (scan.not_numbers > 0 || scan.infinite > 0 || scan.finite == 0) {
        return LogitFault::not_finite;
    }
    // A row of which most is forbidden says nothing of how the rest was computed.
    if (scan.count < 2 || scan.finite * 2 <= scan.count) {
        return std::nullopt;
    }
    const double spread    = static_cast<double>(scan.maximum) - static_cast<double>(scan.minimum);
    const double magnitude = std::max(std::fabs(scan.maximum), std::fabs(scan.minimum));
    if (spread <= FLAT_SPREAD * magnitude) {
        return LogitFault::flat;
    }
    const double share = static_cast<double>(scan.positive) / static_cast<double>(scan.finite);
    if (watch == HealthWatch::full && scan.mean >= SHAPE_MEAN && share >= SHAPE_POSITIVE &&
        scan.deviation >= SHAPE_DEVIATION) {
        return LogitFault::shape;
    }
    return std::nullopt;
}

static std::string short_number(double value) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.4g", value);
    return text;
}

static std::string reason(LogitFault fault, const LogitScan & scan, double share) {
    switch (fault) {
        case LogitFault::not_finite:
            return std::to_string(scan.not_numbers) + " of " + std::to_string(scan.count) +
                   " logits are not numbers, " + std::to_string(scan.infinite) + " are infinite, " +
                   std::to_string(scan.finite) + " can be used";
        case LogitFault::flat: return "all logits are " + short_number(scan.maximum);
        case LogitFault::shape:
            return "the logits have the mean " + short_number(scan.mean) + ", the deviation " +
                   short_number(scan.deviation) + " and " + short_number(100 * share) + " % are positive";
    }
    return "";
}

Error numeric_fault(LogitFault fault, const LogitScan & scan, std::span<const float> logits) {
    const double share =
        scan.finite == 0 ? 0 : static_cast<double>(scan.positive) / static_cast<double>(scan.finite);
    std::string top;
    for (const auto & [token, logit] : highest_logits(logits, 5)) {
        top.append(top.empty() ? "" : " ")
            .append(std::to_string(token))
            .append(":")
            .append(short_number(logit));
    }
    return Error(ErrorCode::numeric_fault,
                 "the model computed nonsense: " + reason(fault, scan, share) +
                     "; the load option healthWatch switches this check",
                 {{"fault", LOGIT_FAULT_NAMES[static_cast<size_t>(fault)]},
                  {"logits", static_cast<double>(scan.count)},
                  {"notNumbers", static_cast<double>(scan.not_numbers)},
                  {"infinite", static_cast<double>(scan.infinite)},
                  {"minimum", scan.minimum},
                  {"maximum", scan.maximum},
                  {"mean", scan.mean},
                  {"deviation", scan.deviation},
                  {"sharePositive", share},
                  {"top", top}});
}

} // namespace headrace
