// What a request tells of an answer that another engine has begun, read from JSON.
#pragma once

#include "chat/chat_reply.h"
#include "engine/replay.h"

#include <nlohmann/json.hpp>

namespace headrace {

struct ReplayField {
    ToldAnswer answer;
    Reply      parts; // the same as a chat has told it, whose text is taken apart
};

// The field "replay" of a command; nothing where there is none. Throws Error (invalid_request).
ReplayField read_replay(const nlohmann::json & command);

} // namespace headrace
