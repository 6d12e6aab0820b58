// The parsing behind chat_reply.h.
#include "chat/chat_reply.h"

#include <chat.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <random>

namespace headrace {

ReplyFormat::ReplyFormat(const common_chat_params & params)
    : parser_(std::make_unique<common_chat_parser_params>(params)), thinking_ends_(params.thinking_end_tags) {
    parser_->parser.load(params.parser);
}

ReplyFormat::~ReplyFormat() = default;

ChatReply::ChatReply(std::shared_ptr<const ReplyFormat> format) : format_(std::move(format)) {}

// Nine letters and digits: some templates take no other ids back in the next turn.
static std::string new_id() {
    static constexpr std::string_view alphabet =
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    std::random_device                    source;
    std::uniform_int_distribution<size_t> any(0, alphabet.size() - 1);
    std::string                           id(9, '\0');
    std::generate(id.begin(), id.end(), [&] { return alphabet[any(source)]; });
    return id;
}

static std::optional<common_chat_msg> parse(const std::string & raw, bool partial,
                                            const ReplyFormat & format) {
    try {
        return common_chat_parse(raw, partial, format.parser());
    } catch (const std::exception &) {
        return std::nullopt; // not what the template describes, or not yet
    }
}

static bool is_object(const std::string & text) {
    return nlohmann::json::parse(text, nullptr, /*allow_exceptions*/ false).is_object();
}

// Adds to `told` what `now` has more. Nothing, when it is not a continuation: what was told stays told.
static std::string grow(std::string & told, const std::string & now) {
    if (now.size() <= told.size() || !now.starts_with(told)) {
        return {};
    }
    std::string more = now.substr(told.size());
    told             = now;
    return more;
}

ReplyDelta ChatReply::push(std::string_view raw) {
    raw_ += raw;
    const auto message = parse(raw_, /*partial*/ true, *format_);
    return message ? advance(*message, false) : ReplyDelta{};
}

ReplyDelta ChatReply::advance(const common_chat_msg & message, bool whole) {
    ReplyDelta delta;
    delta.reasoning = grow(reply_.reasoning, message.reasoning_content);
    delta.text      = grow(reply_.text, message.content);
    for (size_t i = 0; i < message.tool_calls.size(); i++) {
        const common_chat_tool_call & call = message.tool_calls[i];
        // A name may still grow until something follows it.
        const bool named = whole || !call.arguments.empty() || i + 1 < message.tool_calls.size();
        if (call.name.empty() || !named) {
            break;
        }
        ToolCallDelta more;
        more.index = i;
        if (i == announced_) {
            reply_.tool_calls.push_back({new_id(), call.name, ""});
            more.id   = reply_.tool_calls[i].id;
            more.name = call.name;
            announced_++;
        }
        more.arguments = grow(reply_.tool_calls[i].arguments, call.arguments);
        if (!more.id.empty() || !more.arguments.empty()) {
            delta.tool_calls.push_back(std::move(more));
        }
    }
    return delta;
}

// The raw text from where its reading ends: after the reasoning and the text told so far.
std::string ChatReply::unread() const {
    const auto after = [&](const std::string & part, size_t from) {
        const size_t at = part.empty() ? from : raw_.find(part, from);
        return at == std::string::npos ? from : at + (part.empty() ? 0 : part.size());
    };
    size_t at = after(reply_.reasoning, 0);
    if (!reply_.reasoning.empty()) {
        for (const std::string & end : format_->thinking_ends()) {
            const size_t begin = std::min(raw_.find_first_not_of(" \t\r\n", at), raw_.size());
            if (!end.empty() && raw_.compare(begin, end.size(), end) == 0) {
                at = std::min(raw_.find_first_not_of(" \t\r\n", begin + end.size()), raw_.size());
                break;
            }
        }
    }
    at = after(reply_.text, at);
    if (!reply_.tool_calls.empty()) {
        // Calls before are told already: from the line of the unfinished one on.
        const size_t name = raw_.rfind(reply_.tool_calls.back().name);
        const size_t line = name == std::string::npos ? name : raw_.rfind('\n', name);
        at                = line == std::string::npos ? at : std::max(at, line + 1);
    }
    return raw_.substr(at);
}

ReplyDelta ChatReply::finish() {
    const auto message = parse(raw_, /*partial*/ false, *format_);
    ReplyDelta delta   = message ? advance(*message, true) : ReplyDelta{};
    auto &     calls   = reply_.tool_calls;
    for (size_t i = 0; message && i < std::min(calls.size(), message->tool_calls.size()); i++) {
        if (is_object(message->tool_calls[i].arguments)) {
            calls[i].arguments = message->tool_calls[i].arguments;
        }
    }
    const bool complete = message && std::all_of(calls.begin(), calls.end(),
                                                 [](const auto & call) { return is_object(call.arguments); });
    if (!complete) {
        const std::string rest = unread();
        reply_.text += rest;
        delta.text += rest;
        std::erase_if(calls, [](const auto & call) { return !is_object(call.arguments); });
    }
    return delta;
}

} // namespace headrace
