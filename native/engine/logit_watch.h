// Whether logits can be those of a working model: figures over one row of them, and a verdict.
//
// Pure functions; sampling.cpp asks for every token, with the mode of the load option "healthWatch". Not a
// proof: it knows the shapes that a broken forward pass was seen to take, and no honest model was.
//
// Calibrated on 560 tokens each, of seven prompts at temperature 1.5:
//
//                                        mean           deviation     share positive   highest - lowest
//   SmolLM2-135M, Q4_1                   -17.1 … 19.2   2.3 … 4.6     0.00 … 1.00      26 … 56
//   trained mixture of experts, q4_k_m   -5.9 … 2.2     0.4 … 1.3     0.02 … 0.98      4 … 19
//   case G13, a broken pass              +16            8 or more     0.80
#pragma once

#include "engine/error.h"
#include "engine/request.h"

#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace headrace {

// One pass over a row. Where it says "finite": -inf, a legal way to forbid a token, is left out of it.
struct LogitScan {
    size_t count       = 0;
    size_t not_numbers = 0; // NaN
    size_t infinite    = 0; // +inf; -inf is in neither
    size_t finite      = 0;
    size_t positive    = 0;  // finite and above 0
    float  minimum     = 0;  // finite; 0 when there are none
    float  maximum     = 0;  // finite; 0 when there are none
    double mean        = 0;  // finite
    double deviation   = 0;  // standard deviation; finite
    Token  likeliest   = -1; // the first of the highest finite ones; -1: there is none
};

// Blocks of the row whose maxima the scan can leave behind: sampling.cpp finds the k highest logits by them.
constexpr size_t SCAN_BLOCK = 256;

// block_maxima: gets the highest finite logit of each SCAN_BLOCK logits (-inf where there is none); may be null.
LogitScan scan_logits(std::span<const float> logits, std::vector<float> * block_maxima = nullptr);

// The row's highest logits, highest first, of equals the first; -inf and NaN are never among them.
std::vector<std::pair<Token, float>> highest_logits(std::span<const float> logits, size_t count);

enum class LogitFault {
    not_finite, // NaN, +inf, or no finite logit at all
    flat,       // all the same: nothing was computed
    shape,      // a distribution like that of uninitialised memory (case G13)
};

constexpr const char * LOGIT_FAULT_NAMES[] = {"notFinite", "flat", "shape"};

// The mode that the load option names.
HealthWatch read_health_watch(std::string_view name);

std::optional<LogitFault> judge(const LogitScan & scan, HealthWatch watch);

// The error (numeric_fault) that tells of a fault: all figures and the top five in its detail.
Error numeric_fault(LogitFault fault, const LogitScan & scan, std::span<const float> logits);

} // namespace headrace
