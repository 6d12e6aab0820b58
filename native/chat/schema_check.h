// JSON schema → grammar, failing closed: what a grammar cannot hold an answer to is refused by name.
//
// llama.cpp's converter (common/json-schema-to-grammar.cpp) writes the grammar; it ignores keywords it does not
// know. The checker lets through only what the grammar then enforces, or makes stricter. Not a validator of
// answers.
#pragma once

#include "engine/error.h"

#include <string>

namespace headrace {

// Throws Error (grammar_invalid) with the JSON pointer and the keyword of the first thing in the schema (JSON
// text) that a grammar would not enforce. lenient: only what the converter cannot take at all is refused.
void check_schema(const std::string & schema, bool lenient = false);

// The GBNF grammar of all JSON texts that conform to the schema. Throws Error (grammar_invalid).
std::string schema_grammar(const std::string & schema);

// A grammar of llama.cpp's chat code or schema converter, mended: its "any character" of a pattern would let a
// quote end the JSON string it stands in.
std::string mend_grammar(std::string grammar);

} // namespace headrace
