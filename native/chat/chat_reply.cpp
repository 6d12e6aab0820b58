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
    for (const common_grammar_trigger & trigger : params.grammar_triggers) {
        if (trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_WORD && call_start_.empty()) {
            const std::string & text = trigger.value;
            call_start_              = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
        }
    }
}

ReplyFormat::~ReplyFormat() = default;

ChatReply::ChatReply(std::shared_ptr<const ReplyFormat> format) : format_(std::move(format)) {}

void ChatReply::go_on(std::string_view raw, Reply told) {
    raw_       = raw;
    reply_     = std::move(told);
    announced_ = reply_.tool_calls.size();
}

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

static std::string without_lead(const std::string & text) {
    return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

ReplyDelta ChatReply::push(std::string_view raw) {
    raw_ += raw;
    const auto message = parse(raw_, /*partial*/ true, *format_);
    return message ? advance(*message, false) : ReplyDelta{};
}

ReplyDelta ChatReply::advance(const common_chat_msg & message, bool whole) {
    ReplyDelta delta;
    delta.reasoning = grow(reply_.reasoning, without_lead(message.reasoning_content));
    // What stands between a thought and the text belongs to neither.
    delta.text =
        grow(reply_.text, reply_.reasoning.empty() ? message.content : without_lead(message.content));
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

// Where in the raw text the reading has come to: after the reasoning and the text told so far.
size_t ChatReply::read_end() const {
    const auto after = [&](const std::string & part, size_t from) {
        const size_t at = raw_.find(part, from);
        return part.empty() || at == std::string::npos ? from : at + part.size();
    };
    const auto past_space = [&](size_t from) {
        return std::min(raw_.find_first_not_of(" \t\r\n", from), raw_.size());
    };
    size_t at = after(reply_.reasoning, 0);
    if (!reply_.reasoning.empty()) {
        for (const std::string & end : format_->thinking_ends()) {
            const size_t begin = past_space(at);
            if (!end.empty() && raw_.compare(begin, end.size(), end) == 0) {
                at = past_space(begin + end.size());
                break;
            }
        }
    }
    return after(reply_.text, at);
}

// The raw text that no part of the reply holds. Where calls before it are whole, it begins with the last one.
std::string ChatReply::unread() const {
    size_t at = read_end();
    if (reply_.tool_calls.size() > 1) {
        const std::string & marker = format_->call_start();
        const size_t        name   = raw_.rfind(reply_.tool_calls.back().name);
        const size_t        begin  = marker.empty() ? raw_.rfind('\n', name) : raw_.rfind(marker, name);
        at                         = begin == std::string::npos ? at : std::max(at, begin);
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
    const bool whole = message && std::all_of(calls.begin(), calls.end(),
                                              [](const auto & call) { return is_object(call.arguments); });
    const std::string rest = unread();
    // A call that broke off before its name is in the text that is left.
    const bool begun =
        calls.empty() && (reply_.text.empty() || (!format_->call_start().empty() &&
                                                  rest.find(format_->call_start()) != std::string::npos));
    if (!whole || begun) {
        reply_.text += rest;
        delta.text += rest;
        std::erase_if(calls, [](const auto & call) { return !is_object(call.arguments); });
    }
    return delta;
}

} // namespace headrace
