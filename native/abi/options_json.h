// JSON ↔ option structs, by the tables of engine/options.h.
#pragma once

#include "engine/error.h"
#include "engine/options.h"

#include <nlohmann/json.hpp>

#include <string>

namespace headrace {

// Throws Error (invalid_option), naming the option, for one that is unknown, mistyped or out of range.
LoadOptions       read_load_options(const nlohmann::json & json);
GenerationOptions read_generation_options(const nlohmann::json & json);
EmbedOptions      read_embed_options(const nlohmann::json & json);
TokenizeOptions   read_tokenize_options(const nlohmann::json & json);

// Every option with its value.
nlohmann::json write_options(const LoadOptions & options);
nlohmann::json write_options(const GenerationOptions & options);
nlohmann::json write_options(const EmbedOptions & options);
nlohmann::json write_options(const TokenizeOptions & options);

// A value for a message to people: short, whatever it is.
std::string brief(const nlohmann::json & value);

// A number as people write it: without a fraction when it has none.
nlohmann::json plain_number(double number);

} // namespace headrace
