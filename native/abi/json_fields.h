// Fields of a JSON object, each with the error that names it; what the readers of commands share.
#pragma once

#include "engine/request.h"

#include <nlohmann/json.hpp>

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

// Throws Error (invalid_request).
[[noreturn]] void malformed(const std::string & why);

// Refuses a field that is not among the names. what: the object, as the message calls it.
void allow_only(const std::string & what, const nlohmann::json & object,
                std::initializer_list<std::string_view> names);

// Throws when the field is missing or no string.
std::string read_string(const nlohmann::json & object, const char * name);

// A token's number. Whether the vocabulary has it is for the engine to say. what: as the message calls it.
Token read_token(const nlohmann::json & value, const std::string & what);

// Throws when the field is missing or no list of token numbers.
std::vector<Token> read_token_ids(const nlohmann::json & object, const char * name);

} // namespace headrace
