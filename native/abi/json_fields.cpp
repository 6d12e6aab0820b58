// The checks behind json_fields.h.
#include "abi/json_fields.h"

#include "abi/options_json.h"

namespace headrace {

using nlohmann::json;

void malformed(const std::string & why) {
    throw Error(ErrorCode::invalid_request, why);
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

Token read_token(const json & value, const std::string & what) {
    if (!value.is_number_integer() || value != json(value.get<Token>())) {
        malformed(what + " must be a token's number, not " + brief(value));
    }
    return value.get<Token>();
}

std::vector<Token> read_token_ids(const json & object, const char * name) {
    const auto found = object.find(name);
    if (found == object.end() || !found->is_array()) {
        malformed(std::string(name) + " must be a list of whole numbers");
    }
    std::vector<Token> ids;
    for (const json & id : *found) {
        const std::string what = std::string(name) + "[" + std::to_string(ids.size()) + "]";
        if (!id.is_number_integer() || id != json(id.get<Token>())) {
            throw Error(ErrorCode::invalid_request, what + " must be a token's number, not " + brief(id),
                        {{"index", static_cast<double>(ids.size())}});
        }
        ids.push_back(id.get<Token>());
    }
    return ids;
}

} // namespace headrace
