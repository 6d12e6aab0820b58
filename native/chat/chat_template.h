// The model's own chat template: messages in, prompt out.
//
// Edge code: called by abi/headrace.cpp before a request reaches the engine. Rendering is llama.cpp's
// (its Jinja interpreter and its workarounds for templates without a system role).
#pragma once

#include "chat/chat_message.h"
#include "chat/chat_options.h"
#include "engine/model.h"

#include <memory>
#include <string>
#include <vector>

struct common_chat_params;
struct common_chat_templates;
struct common_chat_templates_inputs;

namespace headrace {

class ReplyFormat;

// What a request needs to ask the model for the next assistant message.
struct RenderedChat {
    std::string                        prompt;
    Grammar                            grammar;
    std::vector<Token>                 preserved_tokens;
    std::vector<std::string>           stop;  // besides the end of a turn
    std::shared_ptr<const ReplyFormat> reply; // how the answer is read; null: it is plain text
};

class ChatTemplate {
  public:
    // Reads the template of the model, which must outlive this. Throws Error (template_missing, template_rejected).
    explicit ChatTemplate(const Model & model);
    ~ChatTemplate();

    // Throws Error: template_rejected with the template's own words when it refuses the messages, or when it
    // has no place for the tools; grammar_invalid for a schema that cannot be enforced; invalid_request for
    // options that exclude each other.
    RenderedChat render(const std::vector<ChatMessage> & messages, const ChatOptions & options = {}) const;

    // The text with which the template ends an assistant's turn, "<|im_end|>" for one; empty if it has none.
    const std::string & turn_end() const { return turn_end_; }

  private:
    std::string        apply(const std::vector<ChatMessage> & messages, bool ask) const;
    common_chat_params run(const common_chat_templates_inputs & inputs) const;
    std::string        find_turn_end() const;
    std::vector<Token> single_tokens(const std::vector<std::string> & texts) const;
    Grammar            grammar_of(const common_chat_params & params) const;
    void require_tools_shown(const common_chat_params & params, const ChatOptions & options) const;

    struct Deleter {
        void operator()(common_chat_templates * templates) const;
    };
    const Model &                                   model_;
    std::unique_ptr<common_chat_templates, Deleter> templates_;
    std::string                                     turn_end_;
    bool                                            thinks_ = false; // answers may begin with reasoning
};

} // namespace headrace
