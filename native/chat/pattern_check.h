// Which regular expressions a grammar can stand for, in a JSON string.
//
// Used by schema_check.cpp. llama.cpp's converter takes a pattern it does not understand for "any string", and
// some that it takes come out wrong: those are refused here, before it sees them.
#pragma once

#include <string>

namespace headrace {

// Why the pattern cannot be enforced; empty if it can. Never throws but for want of memory.
std::string pattern_trouble(const std::string & pattern);

} // namespace headrace
