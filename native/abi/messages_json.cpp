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

static std::string string_at(const json & object, const char * name, const std::string & where) {
    const auto found = object.find(name);
    if (found == object.end() || !found->is_string()) {
        malformed(where + "." + name + " must be a string");
    }
    return found->get<std::string>();
}

// The calls that an assistant made, as OpenAI-style clients keep them.
static std::vector<ToolCall> read_calls(const json & message, const std::string & where) {
    std::vector<ToolCall> calls;
    const auto            found = message.find("tool_calls");
    if (found == message.end()) {
        return calls;
    }
    if (!found->is_array()) {
        malformed(where + ".tool_calls must be a list");
    }
    for (const json & call : *found) {
        const std::string place = where + ".tool_calls[" + std::to_string(calls.size()) + "]";
        if (!call.is_object() || call.value("type", json()) != "function" ||
            !call.value("function", json()).is_object()) {
            malformed(place +
                      " must be {\"id\", \"type\": \"function\", \"function\": {\"name\", \"arguments\"}}");
        }
        allow_only(place, call, {"id", "type", "function"});
        const json & function = call["function"];
        allow_only(place + ".function", function, {"name", "arguments"});
        ToolCall read{string_at(call, "id", place), string_at(function, "name", place + ".function"),
                      string_at(function, "arguments", place + ".function")};
        if (!json::accept(read.arguments)) {
            malformed(place + ".function.arguments must be JSON");
        }
        calls.push_back(std::move(read));
    }
    return calls;
}

static std::string optional_string(const json & message, const char * name, const std::string & where) {
    return message.contains(name) ? string_at(message, name, where) : "";
}

static ChatMessage read_message(const json & message, const std::string & where) {
    if (!message.is_object()) {
        malformed(where + " must be an object with role and content");
    }
    ChatMessage read;
    read.role = message.value("role", json()).is_string() ? message["role"].get<std::string>() : "";
    if (read.role == "assistant") {
        allow_only(where, message, {"role", "content", "tool_calls", "reasoning"});
        read.tool_calls = read_calls(message, where);
        read.reasoning  = optional_string(message, "reasoning", where);
    } else if (read.role == "tool") {
        allow_only(where, message, {"role", "content", "tool_call_id", "name"});
        read.tool_call_id = string_at(message, "tool_call_id", where);
        read.tool_name    = optional_string(message, "name", where);
    } else if (read.role == "system" || read.role == "user") {
        allow_only(where, message, {"role", "content"});
    } else {
        malformed(where + ".role must be system, user, assistant or tool");
    }
    // A turn of calls alone has no text.
    const bool silent = !read.tool_calls.empty() && message.value("content", json()).is_null();
    read.content      = silent ? "" : read_content(message, where);
    return read;
}

std::vector<ChatMessage> read_messages(const json & command) {
    const auto found = command.find("messages");
    if (found == command.end() || !found->is_array() || found->empty()) {
        malformed("messages must be a list with at least one message");
    }
    std::vector<ChatMessage> messages;
    for (const json & message : *found) {
        messages.push_back(read_message(message, "messages[" + std::to_string(messages.size()) + "]"));
    }
    return messages;
}

} // namespace headrace
