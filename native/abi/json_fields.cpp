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

} // namespace headrace
