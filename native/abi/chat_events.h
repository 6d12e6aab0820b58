// What the events of chats say beyond those of every generation: their options, and the parts of their text.
//
// Called by events_json.cpp for each event on its way to the host.
#pragma once

#include "chat/chat_options.h"
#include "chat/chat_reply.h"
#include "engine/event.h"

#include <nlohmann/json.hpp>

#include <map>
#include <optional>

namespace headrace {

// What the engine does not know of a request in progress: its options beyond those of every generation, and
// how its text is taken apart, if it is.
struct ChatRequest {
    ChatOptions              options;
    std::optional<ChatReply> reply;
    Reply                    told; // of the reply, before this engine went on with it
};

using ChatRequests = std::map<RequestId, ChatRequest>;

// Completes `written`, the JSON of an event: the raw text of a chat is taken apart. May add an event to `array`
// that comes before it. A request that ends leaves `chats`.
void add_chat(nlohmann::json & array, nlohmann::json & written, const Event & event, ChatRequests & chats);

} // namespace headrace
