// JSON ↔ the options of a chat, by the table of chat/chat_options.h.
#pragma once

#include "chat/chat_options.h"
#include "engine/error.h"

#include <nlohmann/json.hpp>

#include <string_view>

namespace headrace {

// Moves the chat options out of `options`, which then holds those of every generation. command: the JSON text
// that `options` is from; a schema's properties keep their order only in a second reading of it.
// Throws Error (invalid_option) that names the option and the place in it.
ChatOptions take_chat_options(nlohmann::json & options, std::string_view command);

// Every chat option with its value.
nlohmann::json write_options(const ChatOptions & options);

} // namespace headrace
