// The option table behind chat_options.h.
#include "chat/chat_options.h"

namespace headrace {

static constexpr const char * REASONING[] = {"auto", "off", "text"};

static const ChatOptionDeclaration CHAT[] = {
    {"tools", &ChatOptions::tools, "Tool[]", 128, false,
     "functions that the model may ask to be called; chat only"},
    {"toolChoice", &ChatOptions::tool_choice, "ToolChoice", 0, false,
     "whether a tool is called: the model decides (auto), never (none), always (required), or this one; chat "
     "only"},
    {"parallelToolCalls", &ChatOptions::parallel_tool_calls, "boolean", 0, false,
     "whether one answer may call several tools, where the model's template allows it; chat only"},
    {"responseFormat", &ChatOptions::response_format, "ResponseFormat", 0, false,
     "what the answer must be: any text, any JSON object, or JSON that conforms to a schema"},
    {"reasoning", &ChatOptions::reasoning, "string", 0, true,
     "what a thinking model thinks: told apart from the text (auto), asked to be left out (off), left in the "
     "text "
     "(text); chat only",
     REASONING},
};

std::span<const ChatOptionDeclaration> chat_option_declarations() {
    return CHAT;
}

} // namespace headrace
