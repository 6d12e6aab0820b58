// The conversions behind options_json.h.
#include "abi/options_json.h"

#include <charconv>
#include <cmath>

namespace headrace {

using nlohmann::json;

json plain_number(double number) {
    constexpr double exact = 9007199254740992.0; // 2^53: past it not every whole number is a double
    const bool       whole = std::fabs(number) <= exact && number == std::floor(number);
    return whole ? json(static_cast<int64_t>(number)) : json(number);
}

std::string brief(const json & value) {
    if (value.is_structured()) {
        return value.is_array() ? "a list" : "an object"; // may be nested deeper than a dump could follow
    }
    constexpr size_t  longest = 60;
    const std::string text    = value.dump(-1, ' ', /*ensure_ascii*/ true, json::error_handler_t::replace);
    return text.size() <= longest ? text : text.substr(0, longest) + "…";
}

namespace {

[[noreturn]] void refuse(const std::string & option, const std::string & why) {
    throw Error(ErrorCode::invalid_option, option + " " + why, {{"option", option}});
}

std::string plain(double number) {
    return plain_number(number).dump();
}

std::string listed(std::span<const char * const> choices) {
    std::string text;
    for (const char * choice : choices) {
        text += (text.empty() ? "" : ", ") + std::string(choice);
    }
    return text;
}

template <class Options> void check_range(const OptionDeclaration<Options> & declared, double value) {
    if (!(value >= declared.minimum && value <= declared.maximum)) {
        refuse(declared.name, "must be from " + plain(declared.minimum) + " to " + plain(declared.maximum) +
                                  ", not " + plain(value));
    }
}

// The key of a token's number: a token id in plain digits.
int32_t read_token_id(const char * option, const std::string & key) {
    int32_t    id     = 0;
    const auto result = std::from_chars(key.data(), key.data() + key.size(), id);
    if (result.ec != std::errc() || result.ptr != key.data() + key.size() || id < 0) {
        refuse(option, "must have token ids as keys, not " + brief(key));
    }
    return id;
}

template <class Options, class Value> void assign(Options & into, Value Options::* member, Value value) {
    // A struct that is smaller than the type has no such member, but GCC warns of what writing it would do.
    if constexpr (sizeof(Options) >= sizeof(Value)) {
        into.*member = std::move(value);
    }
}

template <class Options> struct Reader {
    const OptionDeclaration<Options> & declared;
    const json &                       value;
    Options &                          into;

    void operator()(int64_t Options::* member) const {
        const bool whole = value.is_number() && std::floor(value.get<double>()) == value.get<double>();
        if (!whole) {
            refuse(declared.name, "must be a whole number, not " + brief(value));
        }
        check_range(declared, value.get<double>());
        assign(into, member, static_cast<int64_t>(value.get<double>()));
    }

    void operator()(double Options::* member) const {
        if (!value.is_number()) {
            refuse(declared.name, "must be a number, not " + brief(value));
        }
        check_range(declared, value.get<double>());
        assign(into, member, value.get<double>());
    }

    void operator()(bool Options::* member) const {
        if (!value.is_boolean()) {
            refuse(declared.name, "must be true or false, not " + brief(value));
        }
        assign(into, member, value.get<bool>());
    }

    void operator()(std::string Options::* member) const {
        if (!value.is_string()) {
            refuse(declared.name, "must be a string, not " + brief(value));
        }
        const auto & text    = value.get_ref<const std::string &>();
        const auto & choices = declared.choices;
        if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end()) {
            refuse(declared.name, "must be one of " + listed(choices) + ", not " + brief(value));
        }
        if (static_cast<double>(text.size()) > declared.maximum) {
            refuse(declared.name, "may hold at most " + plain(declared.maximum) + " bytes");
        }
        assign(into, member, text);
    }

    void operator()(std::vector<std::string> Options::* member) const {
        const bool strings =
            value.is_array() &&
            std::all_of(value.begin(), value.end(), [](const json & item) { return item.is_string(); });
        if (!strings) {
            refuse(declared.name, "must be a list of strings, not " + brief(value));
        }
        if (static_cast<double>(value.size()) > declared.maximum) {
            refuse(declared.name, "may hold at most " + plain(declared.maximum) + " strings");
        }
        assign(into, member, value.get<std::vector<std::string>>());
    }

    void operator()(TokenNumbers Options::* member) const {
        if (!value.is_object()) {
            refuse(declared.name, "must be an object of numbers by token id, not " + brief(value));
        }
        if (value.size() > MAX_TOKEN_NUMBERS) {
            refuse(declared.name, "may hold at most " + std::to_string(MAX_TOKEN_NUMBERS) + " tokens");
        }
        TokenNumbers numbers;
        for (const auto & [key, number] : value.items()) {
            const int32_t id = read_token_id(declared.name, key);
            if (!number.is_number()) {
                refuse(declared.name, "must hold numbers, not " + brief(number));
            }
            check_range(declared, number.template get<double>());
            numbers[id] = number.template get<double>();
        }
        assign(into, member, std::move(numbers));
    }
};

template <class Value> json value_json(const Value & value) {
    return value;
}

json value_json(const TokenNumbers & numbers) {
    json object = json::object();
    for (const auto & [token, number] : numbers) {
        object[std::to_string(token)] = number;
    }
    return object;
}

template <class Options>
Options read(const json & given, std::span<const OptionDeclaration<Options>> declarations) {
    Options options;
    if (given.is_null()) {
        return options;
    }
    if (!given.is_object()) {
        throw Error(ErrorCode::invalid_request, "options must be an object");
    }
    for (const auto & [name, value] : given.items()) {
        const auto declared =
            std::find_if(declarations.begin(), declarations.end(),
                         [&](const auto & declaration) { return declaration.name == name; });
        if (declared == declarations.end()) {
            refuse(name.substr(0, 60), "is not an option");
        }
        std::visit(Reader<Options>{*declared, value, options}, declared->member);
    }
    return options;
}

template <class Options>
json write(const Options & options, std::span<const OptionDeclaration<Options>> declarations) {
    json object = json::object();
    for (const auto & declaration : declarations) {
        std::visit([&](auto member) { object[declaration.name] = value_json(options.*member); },
                   declaration.member);
    }
    return object;
}

} // namespace

LoadOptions read_load_options(const json & given) {
    return read(given, load_option_declarations());
}

GenerationOptions read_generation_options(const json & given) {
    return read(given, generation_option_declarations());
}

EmbedOptions read_embed_options(const json & given) {
    return read(given, embed_option_declarations());
}

TokenizeOptions read_tokenize_options(const json & given) {
    return read(given, tokenize_option_declarations());
}

json write_options(const LoadOptions & options) {
    return write(options, load_option_declarations());
}

json write_options(const GenerationOptions & options) {
    return write(options, generation_option_declarations());
}

json write_options(const EmbedOptions & options) {
    return write(options, embed_option_declarations());
}

json write_options(const TokenizeOptions & options) {
    return write(options, tokenize_option_declarations());
}

} // namespace headrace
