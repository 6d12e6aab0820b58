// One turn of a conversation, as plain structs.
//
// Read from JSON by abi/messages_json.cpp, rendered by chat_template.cpp; the calls of an answer come from
// chat_reply.cpp.
#pragma once

#include <string>
#include <vector>

namespace headrace {

struct ToolCall {
    std::string id;
    std::string name;
    std::string arguments; // JSON text
};

struct ChatMessage {
    std::string           role; // "system", "user", "assistant" or "tool"
    std::string           content;
    std::vector<ToolCall> tool_calls   = {}; // of an assistant
    std::string           reasoning    = {}; // of an assistant
    std::string           tool_call_id = {}; // of a tool's result
    std::string           tool_name    = {}; // of a tool's result
};

} // namespace headrace
