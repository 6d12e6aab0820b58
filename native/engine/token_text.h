// The text of one token, as llama.cpp's vocabulary has it.
#pragma once

#include "engine/request.h"

#include <string>

struct llama_vocab;

namespace headrace {

// Raw bytes, not always UTF-8. special: whether control tokens have a text, or none.
std::string token_text(const llama_vocab * vocabulary, Token token, bool special);

} // namespace headrace
