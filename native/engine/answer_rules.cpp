// The rules behind answer_rules.h.
#include "engine/answer_rules.h"

#include <algorithm>

namespace headrace {

static bool holds(const std::vector<Token> & tokens, Token token) {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

std::optional<FinishReason> add_token(TextStream & text, Token token, const AnswerPosition & position,
                                      const Request & request, const Vocabulary & vocabulary,
                                      size_t context) {
    if (vocabulary.is_end(token) || holds(request.stop_tokens, token)) {
        return FinishReason::stop;
    }
    const bool is_text = holds(request.preserved_tokens, token);
    if (text.push(is_text ? vocabulary.special_piece(token) : vocabulary.piece(token)) ||
        position.grammar_ended) {
        return FinishReason::stop;
    }
    const bool full = position.computed >= context && request.options.overflow != "shift";
    if (full || position.tokens >= static_cast<size_t>(request.options.max_tokens)) {
        return FinishReason::length;
    }
    return std::nullopt;
}

ContextSlide slide_context(size_t input, size_t context) {
    const size_t keep = std::min(input, context / 4);
    return {keep, std::max<size_t>((context - keep) / 2, 1)};
}

} // namespace headrace
