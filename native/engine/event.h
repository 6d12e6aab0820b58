// What the engine tells its host, as plain structs; abi/events_json.cpp writes them down.
//
// Pushed in the order things happen, taken all at once by the host. Not a log: every event is part of
// the contract in ARCHITECTURE.md, "The wire format".
#pragma once

#include "engine/error.h"
#include "engine/metrics.h"
#include "engine/op_watch.h"
#include "engine/request.h"

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

struct ReadyEvent {
    ModelInfo   model;
    LoadOptions options; // with the values in force
    double      load_ms = 0;
};

struct AcceptedEvent {
    RequestId         id = 0;
    GenerationOptions options; // with the values in force
    size_t            prompt_tokens = 0;
};

struct TokensEvent {
    RequestId          id = 0;
    std::string        text;
    std::vector<Token> token_ids;
};

struct DoneEvent {
    RequestId          id = 0;
    std::string        text;
    std::vector<Token> token_ids;
    FinishReason       finish_reason = FinishReason::stop;
    Usage              usage;
    RequestStats       stats;
};

struct AuditEvent {
    RequestId              id = 0;
    std::vector<AuditedOp> ops;
};

struct FailedEvent {
    RequestId id = 0;
    Error     error;
};

struct EngineFailedEvent {
    Error error;
};

using Event      = std::variant<ReadyEvent, AcceptedEvent, TokensEvent, DoneEvent, AuditEvent, FailedEvent,
                                EngineFailedEvent>;
using EventQueue = std::vector<Event>;

} // namespace headrace
