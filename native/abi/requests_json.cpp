// The parsing behind requests_json.h.
#include "abi/requests_json.h"

#include "abi/options_json.h"

namespace headrace {

using nlohmann::json;

namespace {

[[noreturn]] void malformed(const std::string & why) {
    throw Error(ErrorCode::invalid_request, why);
}

json parse_object(std::string_view text) {
    const json parsed = json::parse(text, nullptr, /*allow_exceptions*/ false);
    if (!parsed.is_object()) {
        malformed("the command is not a JSON object");
    }
    return parsed;
}

void allow_only(const std::string & what, const json & object,
                std::initializer_list<std::string_view> names) {
    for (const auto & [name, value] : object.items()) {
        if (std::find(names.begin(), names.end(), name) == names.end()) {
            malformed(what + " has an unknown field " + brief(name));
        }
    }
}

std::string read_string(const json & object, const char * name) {
    const auto found = object.find(name);
    if (found == object.end() || !found->is_string()) {
        malformed(std::string(name) + " must be a string");
    }
    return found->get<std::string>();
}

// A message's content: a string, or the list of text parts that OpenAI-style clients send.
std::string read_content(const json & message, const std::string & where) {
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

Operation read_operation(const json & command) {
    const std::string name = read_string(command, "operation");
    for (size_t i = 0; i < std::size(OPERATION_NAMES); i++) {
        if (name == OPERATION_NAMES[i]) {
            return static_cast<Operation>(i);
        }
    }
    throw Error(ErrorCode::unsupported_operation, "this engine cannot " + brief(name));
}

} // namespace

LoadCommand read_load_command(std::string_view text) {
    const json command = parse_object(text);
    allow_only("the command", command, {"model", "options"});
    return {read_string(command, "model"), read_load_options(command.value("options", json()))};
}

SubmitCommand read_submit_command(std::string_view text, RequestId & id) {
    const json command = parse_object(text);
    const auto number  = command.value("id", json());
    if (!number.is_number_integer() || number.get<int64_t>() <= 0) {
        malformed("id must be a positive integer");
    }
    id = number.get<RequestId>();

    SubmitCommand submit;
    submit.operation = read_operation(command);
    if (submit.operation == Operation::query) {
        allow_only("the command", command, {"id", "operation", "options", "prompt"});
        submit.prompt = read_string(command, "prompt");
    } else {
        allow_only("the command", command, {"id", "operation", "options", "messages"});
        submit.messages = read_messages(command);
    }
    submit.options = read_generation_options(command.value("options", json()));
    return submit;
}

} // namespace headrace
