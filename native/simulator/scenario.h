// What a simulation is told and what it tells: a load, a machine, and what became of every request.
//
// Plain structs; scenario_json.h reads and writes them, simulation.h goes from one to the other. Milliseconds
// are those of the simulated machine. Counterpart in Python: bench/scheduler.py and
// tests/native/test_scheduler_properties.py, which make the scenarios and judge the outcomes.
#pragma once

#include "engine/metrics.h"
#include "engine/scheduler.h"

#include <string>
#include <vector>

namespace headrace {

// What a forward pass costs. The defaults are near SmolLM2-135M on two cores: 280 prompt tokens per second,
// 134 tokens per second for one stream.
struct CostModel {
    double fixed_ms     = 3.0;    // of each pass
    double decode_ms    = 3.4;    // per token of a running stream, and per guess
    double prefill_ms   = 3.4;    // per prompt token
    double attention_ms = 0.0008; // per token and position before it
    double logits_ms    = 0.9;    // per row of logits: the output layer
    double state_ms     = 0.002;  // per token of a saved state that is copied
    double noise        = 0;      // standard deviation of a pass, as a share of it
    double spike_chance = 0;      // that a pass is held up by something else
    double spike_ms     = 0;      // and by how much
};

// A drafter that guesses right with a certain chance.
struct Drafting {
    size_t tokens = 0; // guesses per stream and pass at most; 0: there is no drafter
    double chance = 0.5;
    double ms     = 0; // per call
};

// Tokens of a prompt. All segments of a group begin alike; group 0 is what the model itself says.
struct Segment {
    int64_t group  = 0;
    size_t  tokens = 0;
};

struct Arrival {
    RequestId            id    = 0; // in ascending order, as hosts do
    double               at_ms = 0;
    std::vector<Segment> prompt;
    int64_t              output       = 1; // tokens of the answer
    int64_t              priority     = 0;
    int64_t              deadline_ms  = 0;
    double               cancel_at_ms = -1; // negative: never
    std::string          context_key;
    std::string          adapter;       // requests with different ones cannot share a pass
    bool                 shift = false; // slide in a full context instead of ending
};

struct Scenario {
    SchedulerOptions     engine;
    size_t               context      = 4096;    // tokens per slot
    bool                 trims        = true;    // false: like a recurrent model
    size_t               cache_tokens = 1 << 16; // in saved states at most
    uint64_t             seed         = 1;       // of noise, spikes and guesses
    CostModel            cost;
    Drafting             drafting;
    std::vector<Arrival> arrivals;
    bool                 keep_plans = false;
};

// plan numbers: how many passes had begun by then.
struct RequestRecord {
    RequestId           id = 0;
    std::string         outcome; // a finish reason, or the code of an error
    double              submitted_ms   = -1;
    double              admitted_ms    = -1; // negative: unknown, as for what has failed
    double              ended_ms       = -1;
    size_t              submitted_plan = 0;
    size_t              cancelled_plan = SIZE_MAX; // SIZE_MAX: it was not, or had ended before
    size_t              ended_plan     = 0;
    size_t              ends           = 0; // must be 1
    size_t              prompt_tokens  = 0;
    size_t              cached_tokens  = 0;
    std::vector<double> token_ms; // when each token was there
};

struct PlanRecord {
    double                    began_ms = 0;
    double                    ended_ms = 0;
    std::vector<Contribution> contributions;
};

struct Outcome {
    std::vector<RequestRecord> requests; // in order of arrival
    std::vector<PlanRecord>    plans;    // where they are kept
    EngineMetrics              metrics;
};

} // namespace headrace
