// A request as the scheduler sees it: tokens in, options, and what it has cost so far.
//
// Made by intake.cpp from a prompt; not aware of JSON, templates or slots.
#pragma once

#include "engine/options.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace headrace {

using Token     = int32_t;
using RequestId = uint64_t;

enum class FinishReason { stop, length, cancelled, tool_calls };

constexpr const char * FINISH_REASON_NAMES[] = {"stop", "length", "cancelled", "tool_calls"};

// Moments in milliseconds of the engine's clock; negative: not yet.
struct RequestTimes {
    double              submitted   = -1;
    double              admitted    = -1;
    double              first_token = -1;
    double              last_token  = -1;
    std::vector<double> intervals; // between successive tokens
};

// How many tokens both begin with.
inline size_t common_beginning(std::span<const Token> a, std::span<const Token> b) {
    const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    return static_cast<size_t>(ends.first - a.begin());
}

// What the answer must conform to, in GBNF; empty text: nothing. A lazy one holds from the first match of a
// trigger on.
struct Grammar {
    std::string              text;
    bool                     lazy = false;
    std::vector<std::string> trigger_patterns; // regular expressions over the answer so far
    std::vector<Token>       trigger_tokens;
    std::vector<Token> prefill; // the end of the prompt, where the grammar begins before the answer does
};

// How much of the logits is looked at: see logit_watch.h.
enum class HealthWatch { full, numbers, off };

// A LoRA adapter of the model, by its place in the load command, and how strongly it applies.
struct AdapterUse {
    size_t index = 0;
    float  scale = 1;
};

struct Replay;

struct Request {
    RequestId               id = 0;
    std::vector<Token>      prompt;   // what is computed before the first new token
    size_t                  slid = 0; // tokens left out of the prompt so that it fits
    std::vector<AdapterUse> adapters;
    std::string             adapters_id; // the same for equal lists only; empty for none
    GenerationOptions       options;
    Grammar                 grammar;
    std::vector<Token>      stop_tokens; // end the generation like an end-of-text token, without being text
    std::vector<Token>      preserved_tokens; // control tokens that are text all the same: tool call markers
    HealthWatch             health_watch = HealthWatch::full; // of the engine
    RequestTimes            times;
    double                  elapsed_ms = 0; // before it was submitted, in an engine that is no more
    std::shared_ptr<const Replay> replay;   // what that engine has generated; null: nothing
    bool                          cancelled   = false;
    size_t                        passed_over = 0; // requests that have gone first though it was older
};

} // namespace headrace
