// Events → the JSON of ARCHITECTURE.md, "The wire format".
#pragma once

#include "chat/chat_options.h"
#include "chat/chat_reply.h"
#include "engine/event.h"

#include <map>
#include <optional>
#include <string>

namespace headrace {

// What the engine does not know of a request in progress: its options beyond those of every generation, and
// how its text is taken apart, if it is.
struct ChatRequest {
    ChatOptions              options;
    std::optional<ChatReply> reply;
};

using ChatRequests = std::map<RequestId, ChatRequest>;

// Each event as it goes to the host: text of chats is taken apart, and requests that end leave `chats`.
// A JSON array. threads: compute threads of the engine the events come from. Bytes that are not UTF-8
// (there should be none) are replaced, never a reason to fail.
std::string write_events(const EventQueue & events, int64_t threads, ChatRequests & chats);

} // namespace headrace
