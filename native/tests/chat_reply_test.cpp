// Raw text taken apart into text, reasoning and tool calls, also where it is not what the template describes.
// Whole answers of models are in tests/python/test_native_chat.py.
#include "chat/chat_reply.h"

#include <chat.h>
#include <doctest/doctest.h>
#include <log.h>

#include <fstream>
#include <sstream>

using namespace headrace;

namespace {

std::string read_template(const std::string & name) {
    std::ifstream      file(std::string(HR_TEMPLATES "/") + name + ".jinja");
    std::ostringstream text;
    text << file.rdbuf();
    REQUIRE_MESSAGE(!text.str().empty(), name);
    return text.str();
}

// How a model with this template answers when it may call get_weather and clock.
std::shared_ptr<const ReplyFormat> format_of(const std::string & name) {
    common_log_set_verbosity_thold(LOG_LEVEL_OUTPUT - 1);
    const auto                   templates = common_chat_templates_init(nullptr, read_template(name));
    common_chat_templates_inputs inputs;
    common_chat_msg              question;
    question.role    = "user";
    question.content = "How is the weather?";
    inputs.messages  = {question};
    inputs.tools = {{"get_weather", "", R"({"type": "object", "properties": {"city": {"type": "string"}}})"},
                    {"clock", "", R"({"type": "object", "properties": {}})"}};
    inputs.parallel_tool_calls = true;
    inputs.reasoning_format    = COMMON_REASONING_FORMAT_DEEPSEEK;
    return std::make_shared<ReplyFormat>(common_chat_templates_apply(templates.get(), inputs));
}

struct Told {
    std::string           text, reasoning;
    std::vector<ToolCall> calls;
};

void add(Told & told, const ReplyDelta & delta) {
    told.text += delta.text;
    told.reasoning += delta.reasoning;
    for (const ToolCallDelta & more : delta.tool_calls) {
        if (more.index == told.calls.size()) {
            told.calls.push_back({more.id, more.name, ""});
        }
        REQUIRE(more.index < told.calls.size());
        told.calls[more.index].arguments += more.arguments;
    }
}

// All deltas of `raw`, cut into pieces of `size` bytes, put together again.
Told tell(ChatReply & reply, const std::string & raw, size_t size) {
    Told told;
    for (size_t at = 0; at < raw.size(); at += size) {
        add(told, reply.push(std::string_view(raw).substr(at, size)));
    }
    add(told, reply.finish());
    return told;
}

constexpr const char * HERMES  = "Qwen-Qwen2.5-7B-Instruct";
constexpr const char * THINKER = "Qwen-Qwen3-0.6B";
const std::string      CALL =
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bath\"}}\n</tool_call>";

} // namespace

TEST_CASE("chat_reply: the deltas add up to the reply, however the text is cut") {
    const auto        format = format_of(THINKER);
    const std::string raw    = "<think>\nIt rains.\n</think>\n\nLet me look.\n" + CALL;
    for (const size_t size : {1, 2, 3, 7, 20, 1000}) {
        CAPTURE(size);
        ChatReply  reply(format);
        const Told told = tell(reply, raw, size);
        CHECK(told.text == reply.reply().text);
        CHECK(told.reasoning == reply.reply().reasoning);
        CHECK(told.text.starts_with("Let me look."));
        CHECK(told.reasoning.starts_with("It rains."));
        REQUIRE(told.calls.size() == 1);
        CHECK(told.calls[0].name == "get_weather");
        CHECK(told.calls[0].arguments == reply.reply().tool_calls.at(0).arguments);
        CHECK(told.calls[0].id == reply.reply().tool_calls.at(0).id);
        CHECK(told.calls[0].id.size() == 9);
    }
}

TEST_CASE("chat_reply: one reply goes on where another was, with what that one had told") {
    const std::string thought = "<think>\nIt rains.\n</think>\n\nLet me look.\n";
    for (const char * name : {THINKER, HERMES}) {
        const auto format = format_of(name);
        for (const std::string & raw : {thought + CALL, CALL + "\n" + CALL, "A < b. " + CALL, thought,
                                        std::string("<tool_call>\n{\"name\": \"clo")}) {
            CAPTURE(raw);
            for (size_t cut = 0; cut <= raw.size(); cut++) {
                CAPTURE(cut);
                const std::string_view before = std::string_view(raw).substr(0, cut);
                for (const size_t size : {1, 5}) {
                    Told      told;
                    ChatReply first(format);
                    for (size_t at = 0; at < cut; at += size) {
                        add(told, first.push(before.substr(at, size)));
                    }
                    ChatReply second(format);
                    second.go_on(before, {told.text, told.reasoning, told.calls});
                    CHECK(second.reply().text == first.reply().text);
                    Told rest = told;
                    // Both go on with the same pieces, and must tell the same.
                    for (size_t at = cut; at < raw.size(); at += size) {
                        add(told, first.push(std::string_view(raw).substr(at, size)));
                        add(rest, second.push(std::string_view(raw).substr(at, size)));
                    }
                    add(told, first.finish());
                    add(rest, second.finish());
                    CHECK(rest.text == told.text);
                    CHECK(rest.reasoning == told.reasoning);
                    REQUIRE(rest.calls.size() == told.calls.size());
                    REQUIRE(second.reply().tool_calls.size() == first.reply().tool_calls.size());
                    for (size_t i = 0; i < rest.calls.size(); i++) {
                        CHECK(rest.calls[i].name == told.calls[i].name);
                        CHECK(rest.calls[i].arguments == told.calls[i].arguments);
                    }
                    for (size_t i = 0; i < second.reply().tool_calls.size(); i++) {
                        CHECK(second.reply().tool_calls[i].id == rest.calls[i].id);
                        CHECK(second.reply().tool_calls[i].arguments ==
                              first.reply().tool_calls[i].arguments);
                    }
                }
            }
        }
    }
}

TEST_CASE("chat_reply: arguments and thoughts are told while they are made") {
    ChatReply         reply(format_of(THINKER));
    const std::string raw       = "<think>\nIt rains.\n</think>\n\n" + CALL;
    int               arguments = 0, reasoning = 0;
    for (const char character : raw) {
        const ReplyDelta delta = reply.push(std::string_view(&character, 1));
        reasoning += delta.reasoning.empty() ? 0 : 1;
        for (const ToolCallDelta & more : delta.tool_calls) {
            arguments += more.arguments.empty() ? 0 : 1;
        }
    }
    CHECK(arguments > 4);
    CHECK(reasoning > 4);
}

TEST_CASE("chat_reply: what is no call is text, and nothing of it is lost") {
    const auto format = format_of(HERMES);
    for (const std::string raw : {"Plain text.", "<tool_call>", "Look:\n<tool_call>\n{\"na",
                                  "<tool_call>\n{\"name\": \"get_weather\", \"argum",
                                  "<tool_call>\nnothing of the kind\n</tool_call> and more",
                                  "<tool_call>\n{\"name\": \"unknown\", \"arguments\": {}}\n</tool_call>",
                                  "</tool_call>", "{\"name\": 1}"}) {
        for (const size_t size : {1, 4, 1000}) {
            CAPTURE(raw);
            CAPTURE(size);
            ChatReply  reply(format);
            const Told told = tell(reply, raw, size);
            CHECK(reply.reply().tool_calls.empty());
            CHECK(told.text == reply.reply().text);
            CHECK(told.text == raw);
        }
    }
}

TEST_CASE("chat_reply: a whole call before a broken one is a call") {
    for (const size_t size : {1, 5, 1000}) {
        ChatReply  reply(format_of(HERMES));
        const Told told = tell(reply, CALL + "\n<tool_call>\n{\"name\": \"clock\", \"arg", size);
        REQUIRE(reply.reply().tool_calls.size() == 1);
        CHECK(reply.reply().tool_calls[0].arguments == "{\"city\": \"Bath\"}");
        CHECK(told.text.find("clock") != std::string::npos);
    }
}

TEST_CASE("chat_reply: a thought that does not end is a thought") {
    ChatReply  reply(format_of(THINKER));
    const Told told = tell(reply, "<think>\nIt rains, and", 3);
    CHECK(told.reasoning == "It rains, and");
    CHECK(told.text == "");
}

TEST_CASE("chat_reply: nothing is a reply too") {
    ChatReply reply(format_of(HERMES));
    CHECK(reply.finish().empty());
    CHECK(reply.reply().text == "");
}
