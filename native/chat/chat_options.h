// The options of a chat beyond those of every generation: tools, structured answers, reasoning.
//
// Counterpart of engine/options.h, for what the engine knows nothing of. abi/chat_options_json.cpp fills the
// struct from JSON by the table, abi/describe.cpp prints it. Schemas are kept as JSON text.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace headrace {

// A function the model may ask to be called.
struct Tool {
    std::string name;
    std::string description;
    std::string parameters;     // the JSON schema of its arguments; empty: it takes none
    bool        strict = false; // the schema must be enforceable wholly
};

struct ToolChoice {
    enum Mode { automatic, none, required, function } mode = automatic;
    std::string name; // of the function, where the mode is function
};

struct ResponseFormat {
    enum Type { text, json_object, json_schema } type = text;
    std::string         name;   // of the schema, for the caller's own use
    std::string         schema; // JSON text
    std::optional<bool> strict; // taken for compatibility: a schema is always enforced
};

struct ChatOptions {
    std::vector<Tool> tools;
    ToolChoice        tool_choice;
    bool              parallel_tool_calls = true;
    ResponseFormat    response_format;
    std::string       reasoning = "auto";
};

struct ChatOptionDeclaration {
    using Member =
        std::variant<std::vector<Tool> ChatOptions::*, ToolChoice ChatOptions::*, bool ChatOptions::*,
                     ResponseFormat ChatOptions::*, std::string ChatOptions::*>;

    const char * name; // as on the wire, camelCase
    Member       member;
    const char * type; // as hr_describe prints it; build_tools/codegen.py knows its shape
    double       maximum;
    bool         local_only; // refused by remote endpoints
    const char * help;

    std::span<const char * const> choices = {}; // of a string: all it may be
};

std::span<const ChatOptionDeclaration> chat_option_declarations();

} // namespace headrace
