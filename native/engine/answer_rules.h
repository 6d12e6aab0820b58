// The rules by which an answer goes on and ends, token by token.
//
// Applied by scheduler_results.cpp to tokens as they are made, and by replay.cpp to those that were made before:
// both must come to the same end. Pure; what a token is worth in a KV cache is not known here.
#pragma once

#include "engine/decoder.h"
#include "engine/request.h"
#include "engine/text_stream.h"

#include <optional>

namespace headrace {

// Where an answer stands with its newest token.
struct AnswerPosition {
    size_t tokens        = 0;     // of the answer, the newest included
    size_t computed      = 0;     // before the newest one, in the context
    bool   grammar_ended = false; // nothing can follow by the grammar
};

// Adds the newest token's text to the stream. Returns why the answer ends with it, if it does.
std::optional<FinishReason> add_token(TextStream & text, Token token, const AnswerPosition & position,
                                      const Request & request, const Vocabulary & vocabulary, size_t context);

// What leaves a full context so that an answer can go on: the tokens [keep, keep + count).
struct ContextSlide {
    size_t keep  = 0;
    size_t count = 0;
};

// input: tokens of the request's prompt.
ContextSlide slide_context(size_t input, size_t context);

} // namespace headrace
