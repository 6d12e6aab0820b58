// Events → the JSON of ARCHITECTURE.md, "The wire format".
#pragma once

#include "abi/chat_events.h"
#include "engine/event.h"

#include <string>

namespace headrace {

// Each event as it goes to the host: text of chats is taken apart, and requests that end leave `chats`.
// A JSON array. threads: compute threads of the engine the events come from. Bytes that are not UTF-8
// (there should be none) are replaced, never a reason to fail.
std::string write_events(const EventQueue & events, int64_t threads, ChatRequests & chats);

} // namespace headrace
