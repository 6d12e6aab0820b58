// Rendering behind chat_template.h.
#include "chat/chat_template.h"

#include <chat.h>
#include <log.h>

#include <mutex>

namespace headrace {

// llama.cpp's `common` would start a thread to write its log; silence keeps it from doing so.
static void silence_common_log() {
    static std::once_flag done;
    std::call_once(done, [] { common_log_set_verbosity_thold(LOG_LEVEL_OUTPUT - 1); });
}

// The interpreter's messages begin with what a template author needs and users do not: keep the reason.
static std::string reason(const std::exception & error) {
    std::string       text   = error.what();
    const std::string marker = "Jinja Exception: ";
    if (const size_t at = text.find(marker); at != std::string::npos) {
        text.erase(0, at + marker.size());
    }
    return text.substr(0, text.find('\n'));
}

void ChatTemplate::Deleter::operator()(common_chat_templates * templates) const {
    common_chat_templates_free(templates);
}

ChatTemplate::ChatTemplate(const Model & model) {
    silence_common_log();
    if (!model.info().chat_template) {
        throw Error(ErrorCode::template_missing,
                    "this model has no chat template: it can continue a text (query), but not chat");
    }
    try {
        templates_.reset(common_chat_templates_init(model.get(), "").release());
    } catch (const std::exception & error) {
        throw Error(ErrorCode::template_rejected,
                    "the model's chat template cannot be read: " + reason(error));
    }
    turn_end_ = find_turn_end();
}

ChatTemplate::~ChatTemplate() = default;

std::string ChatTemplate::apply(const std::vector<ChatMessage> & messages, bool ask) const {
    common_chat_templates_inputs inputs;
    for (const ChatMessage & message : messages) {
        common_chat_msg converted;
        converted.role    = message.role;
        converted.content = message.content;
        inputs.messages.push_back(std::move(converted));
    }
    inputs.add_generation_prompt = ask;
    inputs.force_pure_content    = true; // no tools and no reasoning parts in this engine yet
    return common_chat_templates_apply(templates_.get(), inputs).prompt;
}

RenderedChat ChatTemplate::render(const std::vector<ChatMessage> & messages, const ChatOptions &) const {
    RenderedChat rendered;
    try {
        rendered.prompt = apply(messages, true);
        return rendered;
    } catch (const std::exception & error) {
        throw Error(ErrorCode::template_rejected,
                    "the model's chat template refuses these messages: " + reason(error));
    }
}

// Some files do not mark the end-of-turn token as one, and generation would run on through it. The template
// knows it: it is what follows the content of an assistant's message.
std::string ChatTemplate::find_turn_end() const {
    const std::string content = "headrace-turn-content";
    try {
        const std::string text  = apply({{"user", "x"}, {"assistant", content}}, false);
        const size_t      at    = text.find(content);
        const std::string rest  = at == std::string::npos ? "" : text.substr(at + content.size());
        const size_t      begin = rest.find_first_not_of(" \t\r\n");
        if (begin == std::string::npos) {
            return "";
        }
        const std::string marker = rest.substr(begin, rest.find_first_of(" \t\r\n", begin) - begin);
        // A marker, not the beginning of prose that some templates put between turns.
        const bool bracketed = marker.size() > 2 && (marker.front() == '<' || marker.front() == '[');
        return bracketed ? marker.substr(0, marker.find_first_of(">]") + 1) : "";
    } catch (const std::exception &) {
        return ""; // a template that refuses this conversation tells nothing; the vocabulary's own end remains
    }
}

} // namespace headrace
