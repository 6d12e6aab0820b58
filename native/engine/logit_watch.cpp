// The pass over the logits, and the thresholds, behind logit_watch.h.
#include "engine/logit_watch.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>

namespace headrace {

namespace {

constexpr float INFINITE = std::numeric_limits<float>::infinity();

// Sums over a part of a row. Distances are from an origin near the row's values.
struct Part {
    float  minimum     = INFINITE;
    float  maximum     = -INFINITE;
    double distances   = 0;
    double squares     = 0; // of the distances
    size_t finite      = 0;
    size_t positive    = 0;
    size_t not_numbers = 0;
    size_t infinite    = 0;
};

void add_one(Part & part, float logit, float origin) {
    if (!std::isfinite(logit)) {
        part.not_numbers += std::isnan(logit) ? 1 : 0;
        part.infinite += logit > 0 ? 1 : 0;
        return;
    }
    const double distance = static_cast<double>(logit) - static_cast<double>(origin);
    part.minimum          = std::min(part.minimum, logit);
    part.maximum          = std::max(part.maximum, logit);
    part.distances += distance;
    part.squares += distance * distance;
    part.finite++;
    part.positive += logit > 0 ? 1 : 0;
}

// Vectors by hand, in the spelling of GCC and Clang: a compiler may not reorder additions by itself.
using Floats   = float __attribute__((vector_size(16)));
using Integers = int32_t __attribute__((vector_size(16)));

constexpr size_t WIDTH  = 4; // floats in a vector
constexpr size_t UNROLL = 2; // independent sums

// A whole SCAN_BLOCK, if all of it is finite; else returns nothing.
std::optional<Part> scan_finite(const float * logits, float origin) {
    static_assert(SCAN_BLOCK % (WIDTH * UNROLL) == 0);
    Floats   low[UNROLL], high[UNROLL], distances[UNROLL] = {}, squares[UNROLL] = {};
    Integers positive[UNROLL] = {};
    for (size_t k = 0; k < UNROLL; k++) {
        std::memcpy(&low[k], logits + k * WIDTH, sizeof(Floats));
        high[k] = low[k];
    }
    for (size_t i = 0; i < SCAN_BLOCK; i += WIDTH * UNROLL) {
        for (size_t k = 0; k < UNROLL; k++) {
            Floats value;
            std::memcpy(&value, logits + i + k * WIDTH, sizeof(Floats));
            const Floats distance = value - origin;
            distances[k] += distance;
            squares[k] += distance * distance;
            low[k]  = value < low[k] ? value : low[k];
            high[k] = value > high[k] ? value : high[k];
            positive[k] -= value > 0.0f; // a comparison that holds is -1
        }
    }
    Part part;
    for (size_t k = 0; k < UNROLL; k++) {
        for (size_t lane = 0; lane < WIDTH; lane++) {
            part.minimum = std::min(part.minimum, low[k][lane]);
            part.maximum = std::max(part.maximum, high[k][lane]);
            part.distances += static_cast<double>(distances[k][lane]);
            part.squares += static_cast<double>(squares[k][lane]);
            part.positive += static_cast<size_t>(positive[k][lane]);
        }
    }
    part.finite = SCAN_BLOCK;
    // One value that is not finite leaves no finite square.
    return std::isfinite(part.squares) ? std::optional(part) : std::nullopt;
}

Part scan_part(std::span<const float> logits, float origin) {
    if (logits.size() == SCAN_BLOCK) {
        if (const auto part = scan_finite(logits.data(), origin)) {
            return *part;
        }
    }
    Part part;
    for (const float logit : logits) {
        add_one(part, logit, origin);
    }
    return part;
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
        const Part   part   = scan_part(logits.subspan(begin, length), origin);
        if (part.maximum > scan.maximum) {
            scan.maximum = part.maximum;
            best_block   = begin;
        }
        scan.minimum = std::min(scan.minimum, part.minimum);
        sum += part.distances;
        squares += part.squares;
        scan.finite += part.finite;
        scan.positive += part.positive;
        scan.not_numbers += part.not_numbers;
        scan.infinite += part.infinite;
        if (block_maxima) {
            block_maxima->push_back(part.maximum);
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

// Far below the smallest spread of an honest row (4), far above rounding.
constexpr double FLAT_SPREAD = 1e-5; // of the largest magnitude

// Softmax does not care for a shift, so the mean alone tells nothing: that of SmolLM2 goes up to 19, with every
// logit positive; BLOOM's is around 300; GPT-2's are all negative. But 80 % positive around a mean of 16 also
// needs a deviation of 8 (Cantelli's inequality), nearly twice what honest rows were seen to have.
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
