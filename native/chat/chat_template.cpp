// Rendering behind chat_template.h.
#include "chat/chat_template.h"

#include "chat/chat_reply.h"
#include "chat/schema_check.h"

#include <chat.h>
#include <log.h>

#include <algorithm>
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

// Whether the template has a way to think, and llama.cpp one to tell that apart.
static bool template_thinks(const common_chat_templates * templates) {
    try {
        return common_chat_templates_support_enable_thinking(templates);
    } catch (const std::exception &) {
        return false; // it refuses the trial conversation, or is like no other: its answers stay whole
    }
}

ChatTemplate::ChatTemplate(const Model & model) : model_(model) {
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
    thinks_   = template_thinks(templates_.get());
}

ChatTemplate::~ChatTemplate() = default;

static common_chat_msg convert(const ChatMessage & message) {
    common_chat_msg converted;
    converted.role              = message.role;
    converted.content           = message.content;
    converted.reasoning_content = message.reasoning;
    converted.tool_call_id      = message.tool_call_id;
    converted.tool_name         = message.tool_name;
    for (const ToolCall & call : message.tool_calls) {
        converted.tool_calls.push_back({call.name, call.arguments, call.id});
    }
    return converted;
}

common_chat_params ChatTemplate::run(const common_chat_templates_inputs & inputs) const {
    try {
        return common_chat_templates_apply(templates_.get(), inputs);
    } catch (const std::exception & error) {
        const std::string text = error.what();
        if (text.find("JSON schema") != std::string::npos) {
            throw Error(ErrorCode::grammar_invalid, "tools: " + text);
        }
        throw Error(ErrorCode::template_rejected,
                    "the model's chat template refuses these messages: " + reason(error));
    }
}

// The options of llama.cpp's renderer, without what decides how the answer is read.
static common_chat_templates_inputs inputs_of(const std::vector<ChatMessage> & messages,
                                              const ChatOptions &              options) {
    common_chat_templates_inputs inputs;
    std::transform(messages.begin(), messages.end(), std::back_inserter(inputs.messages), convert);
    inputs.add_generation_prompt = true;
    inputs.enable_thinking       = options.reasoning != "off";
    const ToolChoice & choice    = options.tool_choice;
    for (const Tool & tool : options.tools) {
        if (choice.mode != ToolChoice::function || tool.name == choice.name) {
            inputs.tools.push_back(
                {tool.name, tool.description,
                 tool.parameters.empty() ? R"({"type": "object", "properties": {}})" : tool.parameters});
        }
    }
    inputs.tool_choice = choice.mode == ToolChoice::automatic ? COMMON_CHAT_TOOL_CHOICE_AUTO
                         : choice.mode == ToolChoice::none    ? COMMON_CHAT_TOOL_CHOICE_NONE
                                                              : COMMON_CHAT_TOOL_CHOICE_REQUIRED;
    return inputs;
}

static void check_tools(const ChatOptions & options) {
    for (const Tool & tool : options.tools) {
        if (tool.parameters.empty()) {
            continue;
        }
        try {
            check_schema(tool.parameters, /*lenient*/ !tool.strict);
        } catch (const Error & error) {
            throw Error(error.code, "tools: " + tool.name + ": " + error.what(), error.detail);
        }
    }
}

RenderedChat ChatTemplate::render(const std::vector<ChatMessage> & messages,
                                  const ChatOptions &              options) const {
    const bool structured = options.response_format.type != ResponseFormat::text;
    const bool calls      = !options.tools.empty() && options.tool_choice.mode != ToolChoice::none;
    const bool split      = thinks_ && options.reasoning != "text"; // reasoning is told apart
    if (structured && calls) {
        throw Error(
            ErrorCode::invalid_request,
            "tools and responseFormat exclude each other: an answer cannot be both a call and conform to a "
            "schema; toolChoice \"none\" keeps the tools in the prompt");
    }
    if (structured && thinks_ && !split) {
        throw Error(
            ErrorCode::invalid_request,
            "reasoning \"text\" and responseFormat exclude each other: the thoughts would not be JSON");
    }
    check_tools(options);

    common_chat_templates_inputs inputs = inputs_of(messages, options);
    inputs.parallel_tool_calls =
        options.parallel_tool_calls &&
        common_chat_templates_get_caps(templates_.get())["supports_parallel_tool_calls"];
    inputs.force_pure_content = !calls && !split;
    inputs.reasoning_format   = split ? COMMON_REASONING_FORMAT_DEEPSEEK : COMMON_REASONING_FORMAT_NONE;
    if (structured) {
        check_schema(options.response_format.schema);
        inputs.json_schema = options.response_format.schema;
    }
    const common_chat_params params = run(inputs);
    if (calls) {
        require_tools_shown(params, options);
    }

    RenderedChat rendered;
    rendered.prompt = params.prompt;
    if (inputs.force_pure_content) {
        rendered.grammar.text = structured ? schema_grammar(options.response_format.schema) : "";
    } else {
        rendered.grammar          = grammar_of(params);
        rendered.preserved_tokens = single_tokens(params.preserved_tokens);
        rendered.stop             = params.additional_stops;
        rendered.reply            = std::make_shared<ReplyFormat>(params);
    }
    return rendered;
}

// A template that knows no tools would leave them out of the prompt without a word.
void ChatTemplate::require_tools_shown(const common_chat_params & params, const ChatOptions & options) const {
    const ToolChoice & choice = options.tool_choice;
    for (const Tool & tool : options.tools) {
        const bool given = choice.mode != ToolChoice::function || tool.name == choice.name;
        if (given && params.prompt.find(tool.name) == std::string::npos) {
            throw Error(ErrorCode::template_rejected, "the model's chat template has no place for tools: " +
                                                          tool.name + " does not appear in the prompt");
        }
    }
    if (choice.mode != ToolChoice::automatic && params.grammar.empty()) {
        throw Error(ErrorCode::template_rejected,
                    "a tool call cannot be required: how this model writes one is not known");
    }
}

// The tokens that stand for these texts alone.
std::vector<Token> ChatTemplate::single_tokens(const std::vector<std::string> & texts) const {
    std::vector<Token> tokens;
    for (const std::string & text : texts) {
        const auto found = common_tokenize(llama_model_get_vocab(model_.get()), text, false, true);
        if (found.size() == 1) {
            tokens.push_back(found[0]);
        }
    }
    return tokens;
}

Grammar ChatTemplate::grammar_of(const common_chat_params & params) const {
    Grammar grammar;
    grammar.text = mend_grammar(params.grammar);
    if (grammar.text.empty()) {
        return grammar;
    }
    grammar.lazy = params.grammar_lazy;
    if (!grammar.lazy) {
        const auto * vocabulary = llama_model_get_vocab(model_.get());
        grammar.prefill         = common_tokenize(vocabulary, params.generation_prompt, false, true);
        // Some tokenisers put a space before a text, which is not in it.
        const bool spaced = !grammar.prefill.empty() && !params.generation_prompt.starts_with(' ') &&
                            common_token_to_piece(vocabulary, grammar.prefill[0], true) == " ";
        if (spaced) {
            grammar.prefill.erase(grammar.prefill.begin());
        }
    }
    for (const common_grammar_trigger & trigger : params.grammar_triggers) {
        const std::string & text = trigger.value;
        switch (trigger.type) {
            case COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN: grammar.trigger_tokens.push_back(trigger.token); break;
            case COMMON_GRAMMAR_TRIGGER_TYPE_WORD: {
                const std::vector<Token> token = single_tokens({text});
                if (token.empty()) {
                    grammar.trigger_patterns.push_back(regex_escape(text));
                } else {
                    grammar.trigger_tokens.push_back(token[0]);
                }
                break;
            }
            case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN: grammar.trigger_patterns.push_back(text); break;
            case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL:
                grammar.trigger_patterns.push_back("^(?:" + text + ")$");
                break;
        }
    }
    return grammar;
}

std::string ChatTemplate::apply(const std::vector<ChatMessage> & messages, bool ask) const {
    common_chat_templates_inputs inputs = inputs_of(messages, {});
    inputs.add_generation_prompt        = ask;
    inputs.force_pure_content           = true;
    return common_chat_templates_apply(templates_.get(), inputs).prompt;
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
