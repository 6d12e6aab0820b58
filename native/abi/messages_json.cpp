// The reading behind messages_json.h.
#include "abi/messages_json.h"

#include "abi/json_fields.h"

namespace headrace {

using nlohmann::json;

// A message's content: a string, or the list of text parts that OpenAI-style clients send.
static std::string read_content(const json & message, const std::string & where) {
    const auto found = message.find("content");
    if (found != message.end() && found->is_string()) {
        return found->get<std::string>();
    }
    if (found == message.end() || !found->is_array()) {
        malformed(where + ".content must be a string or a list of parts");
    }
    std::string text;
    for (const json & part : *found) {
        if (!part.is_object() || part.value("type", json()) != "text") {
            throw Error(ErrorCode::unsupported_operation, where + ".content has a part that is not text");
        }
        allow_only("a part of " + where + ".content", part, {"type", "text"});
        text += read_string(part, "text");
    }
    return text;
}

std::vector<ChatMessage> read_messages(const json & command) {
    const auto found = command.find("messages");
    if (found == command.end() || !found->is_array() || found->empty()) {
        malformed("messages must be a list with at least one message");
    }
    std::vector<ChatMessage> messages;
    for (const json & message : *found) {
        const std::string where = "messages[" + std::to_string(messages.size()) + "]";
        if (!message.is_object()) {
            malformed(where + " must be an object with role and content");
        }
        const std::string role =
            message.value("role", json()).is_string() ? message["role"].get<std::string>() : "";
        if (role != "system" && role != "user" && role != "assistant") {
            malformed(where + ".role must be system, user or assistant");
        }
        allow_only(where, message, {"role", "content"});
        messages.push_back({role, read_content(message, where)});
    }
    return messages;
}

} // namespace headrace
