// The commands a host sends, read from JSON: the only place that knows their field names.
#pragma once

#include "abi/replay_json.h"
#include "chat/chat_template.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "engine/request.h"

#include <string>
#include <string_view>
#include <vector>

namespace headrace {

struct LoadCommand {
    ModelFiles  files;
    LoadOptions options;
    ProvenOps   proven_ops;
};

enum class Operation {
    query,
    chat,
    embed,
    tokenize,
    detokenize,
    count_tokens,
    apply_template,
    audit,
    metrics
};

constexpr const char * OPERATION_NAMES[] = {"query",       "chat",          "embed", "tokenize", "detokenize",
                                            "countTokens", "applyTemplate", "audit", "metrics"};

struct SubmitCommand {
    Operation                operation = Operation::query;
    std::string              prompt;   // of a query
    std::vector<ChatMessage> messages; // of a chat and of what is asked about one
    GenerationOptions        options;  // of both
    ChatOptions              chat;     // of a chat; of a query: its response format alone
    ReplayField              replay;   // of both
    std::vector<std::string> inputs;   // of an embed
    EmbedOptions             embed_options;
    std::string              text;      // of tokenize; of countTokens, unless it has messages
    std::vector<Token>       token_ids; // of detokenize
    TokenizeOptions          tokenize_options;
};

// All throw Error (invalid_request, invalid_option, unsupported_operation).
LoadCommand read_load_command(std::string_view text);

// The id is read first and put into `id`, so that what is wrong with the rest can be reported under it.
SubmitCommand read_submit_command(std::string_view text, RequestId & id);

} // namespace headrace
