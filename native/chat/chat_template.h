// The model's own chat template: messages in, prompt out.
//
// Edge code: called by abi/headrace.cpp before a request reaches the engine. Rendering is llama.cpp's
// (its Jinja interpreter and its workarounds for templates without a system role).
#pragma once

#include "engine/model.h"

#include <memory>
#include <string>
#include <vector>

struct common_chat_templates;

namespace headrace {

struct ChatMessage {
    std::string role;
    std::string content;
};

class ChatTemplate {
  public:
    // Reads the template of the model. Throws Error (template_missing, template_rejected).
    explicit ChatTemplate(const Model & model);
    ~ChatTemplate();

    // The prompt that asks the model for the next assistant message.
    // Throws Error (template_rejected) with the template's own words when it refuses the messages.
    std::string render(const std::vector<ChatMessage> & messages) const;

    // The text with which the template ends an assistant's turn, "<|im_end|>" for one; empty if it has none.
    const std::string & turn_end() const { return turn_end_; }

  private:
    std::string apply(const std::vector<ChatMessage> & messages, bool ask) const;
    std::string find_turn_end() const;

    struct Deleter {
        void operator()(common_chat_templates * templates) const;
    };
    std::unique_ptr<common_chat_templates, Deleter> templates_;
    std::string                                     turn_end_;
};

} // namespace headrace
