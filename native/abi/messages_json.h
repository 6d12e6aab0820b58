// The messages of a chat, read from JSON.
#pragma once

#include "chat/chat_template.h"

#include <nlohmann/json.hpp>

#include <vector>

namespace headrace {

// The field "messages" of a command. Throws Error (invalid_request, unsupported_operation).
std::vector<ChatMessage> read_messages(const nlohmann::json & command);

} // namespace headrace
