// The parsing behind requests_json.h.
#include "abi/requests_json.h"

#include "abi/chat_options_json.h"
#include "abi/json_fields.h"
#include "abi/messages_json.h"
#include "abi/options_json.h"

namespace headrace {

using nlohmann::json;

namespace {

json parse_object(std::string_view text) {
    const json parsed = json::parse(text, nullptr, /*allow_exceptions*/ false);
    if (!parsed.is_object()) {
        malformed("the command is not a JSON object");
    }
    return parsed;
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

// A query has no template: nothing to show tools with, nor to tell reasoning by.
void refuse_for_query(const json & options) {
    for (const ChatOptionDeclaration & declared : chat_option_declarations()) {
        const bool refused = std::string_view(declared.name) != "responseFormat";
        if (refused && options.is_object() && options.contains(declared.name)) {
            throw Error(ErrorCode::invalid_option,
                        std::string(declared.name) + " is an option of chat, not of query",
                        {{"option", declared.name}});
        }
    }
}

// Both say what the answer must look like.
void refuse_two_grammars(const json & options, const ChatOptions & chat) {
    const bool grammar = options.is_object() && options.contains("grammar") && options["grammar"] != "";
    if (grammar && (!chat.tools.empty() || chat.response_format.type != ResponseFormat::text)) {
        malformed("grammar excludes tools and responseFormat, which bring a grammar of their own");
    }
}

std::vector<AdapterFile> read_adapters(const json & given) {
    if (!given.is_null() && !given.is_array()) {
        malformed("adapters must be a list");
    }
    std::vector<AdapterFile> adapters;
    for (const json & adapter : given) {
        if (!adapter.is_object()) {
            malformed("adapters must hold objects with name and path");
        }
        allow_only("an adapter", adapter, {"name", "path", "scale"});
        const json scale = adapter.value("scale", json(1));
        if (!scale.is_number()) {
            malformed("an adapter's scale must be a number");
        }
        adapters.push_back({read_string(adapter, "name"), read_string(adapter, "path"), scale.get<float>()});
    }
    return adapters;
}

} // namespace

LoadCommand read_load_command(std::string_view text) {
    const json command = parse_object(text);
    allow_only("the command", command, {"model", "adapters", "draftModel", "options"});
    LoadCommand load;
    load.files.model    = read_string(command, "model");
    load.files.adapters = read_adapters(command.value("adapters", json()));
    if (command.contains("draftModel")) {
        load.files.draft_model = read_string(command, "draftModel");
    }
    load.options = read_load_options(command.value("options", json()));
    return load;
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
    if (submit.operation == Operation::audit) {
        allow_only("the command", command, {"id", "operation"});
        return submit;
    }
    if (submit.operation == Operation::query) {
        allow_only("the command", command, {"id", "operation", "options", "prompt"});
        submit.prompt = read_string(command, "prompt");
    } else {
        allow_only("the command", command, {"id", "operation", "options", "messages"});
        submit.messages = read_messages(command);
    }
    json options = command.value("options", json());
    if (submit.operation == Operation::query) {
        refuse_for_query(options);
    }
    submit.chat = take_chat_options(options, text);
    refuse_two_grammars(options, submit.chat);
    submit.options = read_generation_options(options);
    return submit;
}

} // namespace headrace
