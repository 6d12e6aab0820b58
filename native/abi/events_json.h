// Events → the JSON of ARCHITECTURE.md, "The wire format".
#pragma once

#include "engine/event.h"

#include <string>

namespace headrace {

// A JSON array. threads: compute threads of the engine the events come from. Bytes that are not UTF-8
// (there should be none) are replaced, never a reason to fail.
std::string write_events(const EventQueue & events, int64_t threads);

} // namespace headrace
