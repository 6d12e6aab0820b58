// What the engine tells its host, as plain structs; abi/events_json.cpp writes them down.
//
// Pushed in the order things happen, taken all at once by the host. Not a log: every event is part of
// the contract in ARCHITECTURE.md, "The wire format".
#pragma once

#include "engine/error.h"
#include "engine/gpu_self_test.h"
#include "engine/logprobs.h"
#include "engine/memory_use.h"
#include "engine/metrics.h"
#include "engine/op_watch.h"
#include "engine/request.h"

#include <optional>
#include <variant>

namespace headrace {

struct ModelInfo {
    std::string name;
    std::string architecture;
    uint64_t    parameters      = 0;
    uint64_t    bytes           = 0;
    int64_t     vocabulary      = 0;
    int64_t     trained_context = 0;
    bool        chat_template   = false;
};

// What of a model a GPU computes, and how it was found to be right.
struct GpuUse {
    std::string    description; // of the device
    int64_t        layers       = 0;
    int64_t        layers_total = 0; // the output's counted
    SelfTestReport self_test;
};

struct ReadyEvent {
    ModelInfo model;
    // What the model can be asked for, by the names of the wire: "query", "chat", "embed".
    std::vector<std::string> operations;
    LoadOptions              options; // with the values in force
    MemoryUse                memory;  // of the model and the draft model, with their contexts
    double                   load_ms = 0;
    std::optional<GpuUse>    gpu; // if there is one
};

struct AcceptedEvent {
    RequestId                                     id = 0;
    std::variant<GenerationOptions, EmbedOptions> options;           // with the values in force
    size_t                                        prompt_tokens = 0; // of all inputs together
    std::string                                   replayed_text;     // of the answer so far; see replay.h
};

struct TokensEvent {
    RequestId          id = 0;
    std::string        text;
    std::vector<Token> token_ids;

    std::optional<std::vector<TokenLogprobs>> logprobs; // of token_ids, when the request asks for them
};

struct DoneEvent {
    RequestId          id = 0;
    std::string        text;
    std::vector<Token> token_ids;
    FinishReason       finish_reason = FinishReason::stop;
    Usage              usage;
    RequestStats       stats;

    std::optional<std::vector<TokenLogprobs>> logprobs; // of token_ids, when the request asks for them
};

// The end of a request for vectors: one per input, in the inputs' order, all of the same length.
struct EmbeddedEvent {
    RequestId                       id = 0;
    std::vector<std::vector<float>> vectors;
    Usage                           usage;
    EmbedStats                      stats;
};

// The answers to questions about texts, which need no forward pass.
struct TokenizedEvent {
    RequestId          id = 0;
    std::vector<Token> token_ids;
};

struct DetokenizedEvent {
    RequestId   id = 0;
    std::string text; // bytes as the vocabulary has them, not always UTF-8
};

struct CountedEvent {
    RequestId id     = 0;
    size_t    tokens = 0;
};

struct RenderedEvent {
    RequestId   id = 0;
    std::string prompt;
};

struct AuditEvent {
    RequestId              id = 0;
    std::vector<AuditedOp> ops;
};

struct MetricsEvent {
    RequestId     id = 0;
    EngineMetrics metrics;
};

struct FailedEvent {
    RequestId id = 0;
    Error     error;
};

struct EngineFailedEvent {
    Error error;
};

using Event = std::variant<ReadyEvent, AcceptedEvent, TokensEvent, DoneEvent, EmbeddedEvent, TokenizedEvent,
                           DetokenizedEvent, CountedEvent, RenderedEvent, AuditEvent, MetricsEvent,
                           FailedEvent, EngineFailedEvent>;
using EventQueue = std::vector<Event>;

} // namespace headrace
