// The commands a host sends, read from JSON: the only place that knows their field names.
#pragma once

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
};

enum class Operation { query, chat, audit };

constexpr const char * OPERATION_NAMES[] = {"query", "chat", "audit"};

struct SubmitCommand {
    Operation                operation = Operation::query;
    std::string              prompt;   // of a query
    std::vector<ChatMessage> messages; // of a chat
    GenerationOptions        options;
    ChatOptions              chat; // of a query: its response format alone
};

// All throw Error (invalid_request, invalid_option, unsupported_operation).
LoadCommand read_load_command(std::string_view text);

// The id is read first and put into `id`, so that what is wrong with the rest can be reported under it.
SubmitCommand read_submit_command(std::string_view text, RequestId & id);

} // namespace headrace
