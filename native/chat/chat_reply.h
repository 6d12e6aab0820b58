// The model's raw text in, the parts of an answer out: text, reasoning, tool calls.
//
// One per chat whose template thinks or that has tools; chat_template.cpp says how its answers are written,
// abi/headrace.cpp puts the parts into events. Parsing is llama.cpp's (common_chat_parse). Not for plain
// chats: their text is the answer.
#pragma once

#include "chat/chat_message.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct common_chat_params;
struct common_chat_parser_params;
struct common_chat_msg;

namespace headrace {

// How the answers to one request are written. Made by chat_template.cpp.
class ReplyFormat {
  public:
    explicit ReplyFormat(const common_chat_params & params);
    ~ReplyFormat();

    const common_chat_parser_params & parser() const { return *parser_; }

    // What ends the reasoning, "</think>" for one; may be empty.
    const std::vector<std::string> & thinking_ends() const { return thinking_ends_; }

    // What begins a call, "<tool_call>" for one; empty where that is not told.
    const std::string & call_start() const { return call_start_; }

  private:
    std::unique_ptr<common_chat_parser_params> parser_;
    std::string                                call_start_;
    std::vector<std::string>                   thinking_ends_;
};

// More of a tool call. The first one of a call has its id and its whole name.
struct ToolCallDelta {
    size_t      index = 0; // of the call in the answer
    std::string id;
    std::string name;
    std::string arguments;
};

struct ReplyDelta {
    std::string                text;
    std::string                reasoning;
    std::vector<ToolCallDelta> tool_calls;

    bool empty() const { return text.empty() && reasoning.empty() && tool_calls.empty(); }
};

struct Reply {
    std::string           text; // all texts of the deltas, joined
    std::string           reasoning;
    std::vector<ToolCall> tool_calls; // complete ones: their arguments are JSON
};

class ChatReply {
  public:
    explicit ChatReply(std::shared_ptr<const ReplyFormat> format);

    // Goes on where another one was after this raw text, of which it had told so much. What was told depends on
    // how the text had been cut, so the text alone would not do.
    void go_on(std::string_view raw, Reply told);

    // Takes more raw text and gives what has become certain by it.
    ReplyDelta push(std::string_view raw);

    // The end: what was still held back, and the whole. What is not, or not wholly, a tool call is text.
    ReplyDelta    finish();
    const Reply & reply() const { return reply_; }

  private:
    ReplyDelta  advance(const common_chat_msg & message, bool whole);
    size_t      read_end() const;
    std::string unread() const;

    std::shared_ptr<const ReplyFormat> format_;
    std::string                        raw_;
    Reply                              reply_;         // as far as told by deltas
    size_t                             announced_ = 0; // calls of reply_ whose id and name have been told
};

} // namespace headrace
