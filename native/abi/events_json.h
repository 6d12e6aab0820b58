// Events → the JSON of ARCHITECTURE.md, "The wire format".
#pragma once

#include "abi/chat_events.h"
#include "engine/event.h"

#include <string>

namespace headrace {

// Of the engine that the events come from: its compute threads, and what computes.
struct EngineFacts {
    int64_t     threads = 0;
    std::string backend = "cpu";
};

// Each event as it goes to the host: text of chats is taken apart, and requests that end leave `chats`.
// A JSON array. Bytes that are not UTF-8 (there should be none) are replaced, never a reason to fail.
std::string write_events(const EventQueue & events, const EngineFacts & facts, ChatRequests & chats);

} // namespace headrace
