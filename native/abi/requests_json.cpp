// The parsing behind requests_json.h.
#include "abi/requests_json.h"

#include "abi/chat_options_json.h"
#include "abi/json_fields.h"
#include "abi/messages_json.h"
#include "abi/options_json.h"

#include <algorithm>
#include <cmath>

namespace headrace {

using nlohmann::json;

namespace {

// The parser follows any depth, but what is made of it afterwards recurses.
bool nests_too_deep(std::string_view text) {
    constexpr int deepest = 1000;
    int           depth   = 0;
    bool          quoted  = false;
    for (size_t i = 0; i < text.size() && depth <= deepest; i++) {
        if (quoted && text[i] == '\\') {
            i++;
        } else if (text[i] == '"') {
            quoted = !quoted;
        } else if (!quoted) {
            depth += text[i] == '[' || text[i] == '{' ? 1 : 0;
            depth -= text[i] == ']' || text[i] == '}' ? 1 : 0;
        }
    }
    return depth > deepest;
}

json parse_object(std::string_view text) {
    if (nests_too_deep(text)) {
        malformed("the command is nested too deep");
    }
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

// text: of the whole command; what is a schema in it keeps the order of its properties.
void read_options(json options, std::string_view text, SubmitCommand & submit) {
    submit.chat = take_chat_options(options, text);
    refuse_two_grammars(options, submit.chat);
    submit.options = read_generation_options(options);
}

void read_query(const json & command, std::string_view text, SubmitCommand & submit) {
    allow_only("the command", command, {"id", "operation", "options", "prompt", "replay"});
    submit.prompt      = read_string(command, "prompt");
    submit.replay      = read_replay(command);
    const json options = command.value("options", json());
    refuse_for_query(options);
    read_options(options, text, submit);
}

void read_conversation(const json & command, std::string_view text, SubmitCommand & submit) {
    submit.messages = read_messages(command);
    read_options(command.value("options", json()), text, submit);
}

void read_chat(const json & command, std::string_view text, SubmitCommand & submit) {
    allow_only("the command", command, {"id", "operation", "options", "messages", "replay"});
    read_conversation(command, text, submit);
    submit.replay = read_replay(command);
}

// What a chat would be, without answering it.
void read_about_chat(const json & command, std::string_view text, SubmitCommand & submit) {
    allow_only("the command", command, {"id", "operation", "options", "messages"});
    read_conversation(command, text, submit);
}

void read_embed(const json & command, SubmitCommand & submit) {
    allow_only("the command", command, {"id", "operation", "options", "inputs"});
    const auto found = command.find("inputs");
    if (found == command.end() || !found->is_array()) {
        malformed("inputs must be a list of texts");
    }
    for (const json & input : *found) {
        if (!input.is_string()) {
            malformed("inputs[" + std::to_string(submit.inputs.size()) + "] must be a string");
        }
        submit.inputs.push_back(input.get<std::string>());
    }
    submit.embed_options = read_embed_options(command.value("options", json()));
}

void read_tokenize(const json & command, SubmitCommand & submit) {
    allow_only("the command", command, {"id", "operation", "options", "text"});
    submit.text             = read_string(command, "text");
    submit.tokenize_options = read_tokenize_options(command.value("options", json()));
}

void read_detokenize(const json & command, SubmitCommand & submit) {
    allow_only("the command", command, {"id", "operation", "tokenIds"});
    submit.token_ids = read_token_ids(command, "tokenIds");
}

// A path, or a list of them.
std::vector<std::string> read_paths(const json & command, const char * name) {
    const auto found = command.find(name);
    if (found == command.end() || !found->is_array()) {
        return {read_string(command, name)};
    }
    std::vector<std::string> paths;
    for (const json & path : *found) {
        if (!path.is_string()) {
            malformed(std::string(name) + " must hold paths");
        }
        paths.push_back(path.get<std::string>());
    }
    if (paths.empty()) {
        malformed(std::string(name) + " must hold a path at least");
    }
    return paths;
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
        if (!scale.is_number() || !std::isfinite(scale.get<float>())) {
            malformed("an adapter's scale must be a finite number");
        }
        adapters.push_back({read_string(adapter, "name"), read_string(adapter, "path"), scale.get<float>()});
    }
    return adapters;
}

} // namespace

// What a host remembers of a GPU; none if it does not.
static ProvenOps read_proven_ops(const json & command) {
    const json list = command.value("provenOps", json::array());
    if (!list.is_array() ||
        !std::all_of(list.begin(), list.end(), [](const json & op) { return op.is_string(); })) {
        malformed("provenOps must be a list of strings");
    }
    return list.get<ProvenOps>();
}

LoadCommand read_load_command(std::string_view text) {
    const json command = parse_object(text);
    allow_only("the command", command, {"model", "adapters", "draftModel", "options", "provenOps"});
    LoadCommand load;
    load.files.model    = read_paths(command, "model");
    load.files.adapters = read_adapters(command.value("adapters", json()));
    if (command.contains("draftModel")) {
        load.files.draft_model = read_paths(command, "draftModel");
    }
    load.options    = read_load_options(command.value("options", json()));
    load.proven_ops = read_proven_ops(command);
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
    switch (submit.operation) {
        case Operation::query: read_query(command, text, submit); break;
        case Operation::chat: read_chat(command, text, submit); break;
        case Operation::apply_template: read_about_chat(command, text, submit); break;
        case Operation::embed: read_embed(command, submit); break;
        case Operation::tokenize: read_tokenize(command, submit); break;
        case Operation::detokenize: read_detokenize(command, submit); break;
        case Operation::metrics:
        case Operation::audit: allow_only("the command", command, {"id", "operation"}); break;
        case Operation::count_tokens:
            if (command.contains("messages")) {
                read_about_chat(command, text, submit);
            } else {
                read_tokenize(command, submit);
            }
            break;
    }
    return submit;
}

} // namespace headrace
