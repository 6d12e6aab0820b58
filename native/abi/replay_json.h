// What a request tells of an answer that another engine has begun, read from JSON.
#pragma once

#include "chat/chat_reply.h"
#include "engine/replay.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>

namespace headrace {

struct ReplayField {
    ToldAnswer             answer;
    Reply                  parts; // the same as a chat has told it, whose text is taken apart
    std::optional<int64_t> seed;  // that was in force, where the request left it to the engine
};

// The field "replay" of a command; nothing where there is none. Throws Error (invalid_request).
ReplayField read_replay(const nlohmann::json & command);

} // namespace headrace
