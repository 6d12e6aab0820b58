// The completing behind chat_events.h.
#include "abi/chat_events.h"

#include "abi/chat_options_json.h"

namespace headrace {

using nlohmann::json;

namespace {

json calls_json(const std::vector<ToolCall> & calls) {
    json list = json::array();
    for (const ToolCall & call : calls) {
        list.push_back({{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
    }
    return list;
}

// Puts the parts of a chat's text into a tokens event, in the place of the raw text.
void write_delta(json & event, const ReplyDelta & delta) {
    event["text"] = delta.text;
    if (!delta.reasoning.empty()) {
        event["reasoning"] = delta.reasoning;
    }
    for (const ToolCallDelta & more : delta.tool_calls) {
        json call = {{"index", more.index}, {"arguments", more.arguments}};
        if (!more.id.empty()) {
            call["id"]   = more.id;
            call["name"] = more.name;
        }
        event["toolCalls"].push_back(call);
    }
}

class ChatWriter {
  public:
    ChatWriter(ChatRequests & chats, json & array) : chats_(chats), array_(array) {}

    void operator()(const AcceptedEvent & event, json & written) {
        const auto chat = chats_.find(event.id);
        if (chat == chats_.end()) {
            return; // an embed
        }
        written["options"].update(write_options(chat->second.options));
        if (ChatReply * reply = reply_of(event.id)) {
            reply->go_on(event.replayed_text, std::move(chat->second.told));
        }
    }

    void operator()(const TokensEvent & event, json & written) {
        if (ChatReply * reply = reply_of(event.id)) {
            write_delta(written, reply->push(event.text));
        }
    }

    void operator()(const DoneEvent & event, json & written) {
        if (ChatReply * reply = reply_of(event.id)) {
            const ReplyDelta rest = reply->finish();
            if (!rest.empty()) {
                array_.push_back({{"type", "tokens"}, {"id", event.id}, {"tokenIds", json::array()}});
                write_delta(array_.back(), rest);
            }
            const Reply & whole  = reply->reply();
            json &        result = written["result"];
            result["text"]       = whole.text;
            result["reasoning"]  = whole.reasoning;
            result["toolCalls"]  = calls_json(whole.tool_calls);
            if (event.finish_reason == FinishReason::stop && !whole.tool_calls.empty()) {
                result["finishReason"] = FINISH_REASON_NAMES[static_cast<size_t>(FinishReason::tool_calls)];
            }
        }
        chats_.erase(event.id);
    }

    void operator()(const FailedEvent & event, json &) { chats_.erase(event.id); }

    void operator()(const auto &, json &) {}

  private:
    ChatReply * reply_of(RequestId id) {
        const auto chat = chats_.find(id);
        return chat != chats_.end() && chat->second.reply ? &*chat->second.reply : nullptr;
    }

    ChatRequests & chats_;
    json &         array_;
};

} // namespace

void add_chat(json & array, json & written, const Event & event, ChatRequests & chats) {
    ChatWriter writer(chats, array);
    std::visit([&](const auto & plain) { writer(plain, written); }, event);
}

} // namespace headrace
