// The conversions behind chat_options_json.h.
#include "abi/chat_options_json.h"

#include "abi/options_json.h"

#include <algorithm>

namespace headrace {

using nlohmann::json;
using Ordered = nlohmann::ordered_json;

namespace {

constexpr size_t MAX_SCHEMA_DEPTH = 100; // a schema is written out again, by recursion
constexpr size_t MAX_SCHEMA_BYTES = 65536;
constexpr size_t MAX_NAME         = 64;

std::string place_of(size_t index) {
    std::string place = "[";
    return place.append(std::to_string(index)).append("]");
}

// Reads one option; `place` says where in it a fault lies.
class OptionReader {
  public:
    explicit OptionReader(const ChatOptionDeclaration & declared) : declared_(declared) {}

    [[noreturn]] void refuse(const std::string & place, const std::string & why) const {
        throw Error(ErrorCode::invalid_option, declared_.name + place + " " + why,
                    {{"option", declared_.name}});
    }

    void read(const Ordered & value, std::vector<Tool> & into) const {
        if (!value.is_array() || static_cast<double>(value.size()) > declared_.maximum) {
            refuse("", "must be a list of at most " + plain_number(declared_.maximum).dump() +
                           " tools, not " + shown(value));
        }
        for (size_t i = 0; i < value.size(); i++) {
            const Tool tool = read_tool(value[i], place_of(i));
            for (const Tool & other : into) {
                if (other.name == tool.name) {
                    refuse("[" + std::to_string(i) + "].function.name", "is that of another tool too");
                }
            }
            into.push_back(tool);
        }
    }

    void read(const Ordered & value, ToolChoice & into) const {
        static constexpr std::string_view modes[] = {"auto", "none", "required"};
        if (value.is_string()) {
            const auto mode = std::find(std::begin(modes), std::end(modes), value.get<std::string>());
            if (mode == std::end(modes)) {
                refuse("", "must be auto, none, required or one function, not " + shown(value));
            }
            into.mode = static_cast<ToolChoice::Mode>(mode - std::begin(modes));
            return;
        }
        into.mode = ToolChoice::function;
        into.name = function_name(function_of(value, ""), ".function", {"name"});
    }

    void read(const Ordered & value, bool & into) const {
        if (!value.is_boolean()) {
            refuse("", "must be true or false, not " + shown(value));
        }
        into = value.get<bool>();
    }

    void read(const Ordered & value, std::string & into) const {
        const auto & choices = declared_.choices;
        if (!value.is_string() ||
            std::find(choices.begin(), choices.end(), value.get<std::string>()) == choices.end()) {
            std::string listed;
            for (const char * choice : choices) {
                listed += (listed.empty() ? "" : ", ") + std::string(choice);
            }
            refuse("", "must be one of " + listed + ", not " + shown(value));
        }
        into = value.get<std::string>();
    }

    void read(const Ordered & value, ResponseFormat & into) const {
        const std::string type = value.is_object() ? text(value, "type") : "";
        if (type == "json_schema") {
            only(value, "", {"type", "json_schema"});
            into.type = ResponseFormat::json_schema;
            read_schema(member(value, "json_schema"), into);
        } else if (type == "text" || type == "json_object") {
            only(value, "", {"type"});
            into.type   = type == "text" ? ResponseFormat::text : ResponseFormat::json_object;
            into.schema = type == "text" ? "" : R"({"type": "object"})";
        } else {
            refuse("", "must be an object with a type of text, json_object or json_schema");
        }
    }

  private:
    static std::string shown(const Ordered & value) {
        return brief(value.is_structured()
                         ? json(value.is_array() ? json::value_t::array : json::value_t::object)
                         : json(value));
    }

    static const Ordered & member(const Ordered & object, const char * name) {
        static const Ordered missing;
        const auto           found = object.find(name);
        return found == object.end() ? missing : *found;
    }

    static std::string text(const Ordered & object, const char * name) {
        const Ordered & value = member(object, name);
        return value.is_string() ? value.get<std::string>() : "";
    }

    void only(const Ordered & object, const std::string & place,
              std::initializer_list<std::string_view> names) const {
        for (const auto & [name, value] : object.items()) {
            if (std::find(names.begin(), names.end(), name) == names.end()) {
                refuse(place, "has an unknown field " + brief(name));
            }
        }
    }

    const Ordered & function_of(const Ordered & value, const std::string & place) const {
        if (!value.is_object() || text(value, "type") != "function" ||
            !member(value, "function").is_object()) {
            refuse(place, "must be {\"type\": \"function\", \"function\": {…}}");
        }
        only(value, place, {"type", "function"});
        return member(value, "function");
    }

    std::string function_name(const Ordered & function, const std::string & place,
                              std::initializer_list<std::string_view> fields) const {
        only(function, place, fields);
        const std::string name = text(function, "name");
        const bool        good = !name.empty() && name.size() <= MAX_NAME &&
                                 std::all_of(name.begin(), name.end(), [](unsigned char c) {
                              return std::isalnum(c) || c == '_' || c == '-';
                                 });
        if (!good) {
            refuse(place + ".name", "must be 1 to 64 letters, digits, _ or -");
        }
        return name;
    }

    Tool read_tool(const Ordered & value, const std::string & place) const {
        const std::string where    = place + ".function";
        const Ordered &   function = function_of(value, place);
        Tool              tool;
        tool.name = function_name(function, where, {"name", "description", "parameters", "strict"});
        if (function.contains("description")) {
            if (!member(function, "description").is_string()) {
                refuse(where + ".description", "must be a string");
            }
            tool.description = text(function, "description");
        }
        if (function.contains("parameters")) {
            tool.parameters = schema_text(member(function, "parameters"), where + ".parameters");
        }
        tool.strict = flag(function, where).value_or(false);
        return tool;
    }

    void read_schema(const Ordered & value, ResponseFormat & into) const {
        if (!value.is_object()) {
            refuse(".json_schema", "must be an object with a schema");
        }
        only(value, ".json_schema", {"name", "description", "schema", "strict"});
        for (const char * name : {"name", "description"}) {
            if (value.contains(name) && !member(value, name).is_string()) {
                refuse(std::string(".json_schema.") + name, "must be a string");
            }
        }
        into.name   = text(value, "name");
        into.strict = flag(value, ".json_schema");
        into.schema = schema_text(member(value, "schema"), ".json_schema.schema");
    }

    std::optional<bool> flag(const Ordered & object, const std::string & place) const {
        const Ordered & value = member(object, "strict");
        if (!value.is_null() && !value.is_boolean()) {
            refuse(place + ".strict", "must be true or false");
        }
        return value.is_boolean() ? std::optional<bool>(value.get<bool>()) : std::nullopt;
    }

    std::string schema_text(const Ordered & schema, const std::string & place) const {
        if (!schema.is_object()) {
            refuse(place, "must be an object: a JSON schema");
        }
        if (deeper_than(schema, MAX_SCHEMA_DEPTH)) {
            refuse(place, "is nested deeper than " + std::to_string(MAX_SCHEMA_DEPTH) + " levels");
        }
        std::string written = schema.dump();
        if (written.size() > MAX_SCHEMA_BYTES) {
            refuse(place, "is longer than " + std::to_string(MAX_SCHEMA_BYTES) + " bytes");
        }
        return written;
    }

    static bool deeper_than(const Ordered & value, size_t levels) {
        return value.is_structured() &&
               (levels == 0 || std::any_of(value.begin(), value.end(), [&](const Ordered & item) {
                    return deeper_than(item, levels - 1);
                }));
    }

    const ChatOptionDeclaration & declared_;
};

json write(const std::vector<Tool> & tools) {
    json list = json::array();
    for (const Tool & tool : tools) {
        json function = {{"name", tool.name}};
        if (!tool.description.empty()) {
            function["description"] = tool.description;
        }
        if (!tool.parameters.empty()) {
            function["parameters"] = json::parse(tool.parameters);
        }
        if (tool.strict) {
            function["strict"] = true;
        }
        list.push_back({{"type", "function"}, {"function", function}});
    }
    return list;
}

json write(const ToolChoice & choice) {
    static constexpr const char * modes[] = {"auto", "none", "required"};
    if (choice.mode == ToolChoice::function) {
        return {{"type", "function"}, {"function", {{"name", choice.name}}}};
    }
    return modes[choice.mode];
}

json write(const ResponseFormat & format) {
    if (format.type != ResponseFormat::json_schema) {
        return {{"type", format.type == ResponseFormat::text ? "text" : "json_object"}};
    }
    json schema = {{"schema", json::parse(format.schema)}};
    if (!format.name.empty()) {
        schema["name"] = format.name;
    }
    if (format.strict) {
        schema["strict"] = *format.strict;
    }
    return {{"type", "json_schema"}, {"json_schema", schema}};
}

json write(bool value) {
    return value;
}

json write(const std::string & value) {
    return value;
}

} // namespace

ChatOptions take_chat_options(json & options, std::string_view command) {
    ChatOptions chat;
    Ordered     given;
    for (const ChatOptionDeclaration & declared : chat_option_declarations()) {
        if (!options.is_object() || !options.contains(declared.name)) {
            continue;
        }
        if (given.is_null()) {
            given = std::move(Ordered::parse(command)["options"]);
        }
        const Ordered &    value = given[declared.name];
        const OptionReader reader(declared);
        std::visit([&](auto member) { reader.read(value, chat.*member); }, declared.member);
        options.erase(declared.name);
    }
    const ToolChoice & choice = chat.tool_choice;
    const bool         known  = std::any_of(chat.tools.begin(), chat.tools.end(),
                                            [&](const Tool & tool) { return tool.name == choice.name; });
    if (choice.mode == ToolChoice::function && !known) {
        throw Error(ErrorCode::invalid_option,
                    "toolChoice names " + choice.name + ", which is not among the tools",
                    {{"option", "toolChoice"}});
    }
    if (choice.mode == ToolChoice::required && chat.tools.empty()) {
        throw Error(ErrorCode::invalid_option, "toolChoice requires a call, but there are no tools",
                    {{"option", "toolChoice"}});
    }
    return chat;
}

json write_options(const ChatOptions & options) {
    json object = json::object();
    for (const ChatOptionDeclaration & declared : chat_option_declarations()) {
        std::visit([&](auto member) { object[declared.name] = write(options.*member); }, declared.member);
    }
    return object;
}

} // namespace headrace
