// The following behind replay.h.
#include "engine/replay.h"

#include "engine/answer_rules.h"
#include "engine/error.h"
#include "engine/grammar.h"

namespace headrace {

namespace {

[[noreturn]] void refuse(const std::string & why) {
    throw Error(ErrorCode::invalid_request, "replay: " + why);
}

[[noreturn]] void refuse_token(size_t index, const std::string & why) {
    throw Error(ErrorCode::invalid_request, "replay.tokenIds[" + std::to_string(index) + "] " + why,
                {{"index", static_cast<double>(index)}});
}

// A request's grammar, or none, which allows everything.
class Follower {
  public:
    Follower(const Request & request, const Vocabulary & vocabulary) {
        if (!request.grammar.text.empty()) {
            matcher_.emplace(request.grammar, vocabulary.llama(), request.stop_tokens,
                             request.preserved_tokens);
        }
    }

    void take(Token token, size_t index) {
        if (matcher_ && !matcher_->allows(token)) {
            refuse_token(index, "is not what the grammar allows there");
        }
        if (matcher_) {
            matcher_->accept(token);
        }
    }

    bool ended() const { return matcher_ && matcher_->ended(); }

  private:
    std::optional<GrammarMatcher> matcher_;
};

// Computes a token, as far as the context's length goes: where that is full, it slides first.
void append(Request & request, Token token, size_t input, size_t context) {
    std::vector<Token> & path = request.prompt;
    if (path.size() >= context && request.options.overflow == "shift") {
        const ContextSlide slide = slide_context(input, context);
        const auto         gap   = path.begin() + static_cast<ptrdiff_t>(slide.keep);
        path.erase(gap, gap + static_cast<ptrdiff_t>(slide.count));
        request.slid += slide.count;
    }
    path.push_back(token);
}

} // namespace

void follow_replay(Request & request, ToldAnswer told, const Vocabulary & vocabulary, size_t context) {
    request.elapsed_ms = told.elapsed_ms;
    if (told.logprobs.size() != (request.options.logprobs ? told.tokens.size() : 0)) {
        refuse("logprobs must have one entry for each token where the request asks for them, else none");
    }
    Replay   replay{std::move(told.tokens),
                    std::move(told.logprobs),
                    request.prompt,
                    TextStream(request.options.stop),
                    {},
                    {}};
    Follower grammar(request, vocabulary);
    for (size_t i = 0; i < replay.tokens.size(); i++) {
        const Token token = replay.tokens[i];
        if (token < 0 || static_cast<size_t>(token) >= vocabulary.size()) {
            refuse_token(i, "is " + std::to_string(token) + ", the vocabulary has the tokens 0 to " +
                                std::to_string(vocabulary.size() - 1));
        }
        if (replay.ended) {
            refuse_token(i, "comes after the answer's end");
        }
        grammar.take(token, i);
        replay.ended = add_token(replay.stream, token, {i + 1, request.prompt.size(), grammar.ended()},
                                 request, vocabulary, context);
        append(request, token, replay.input.size(), context);
    }
    replay.text = replay.stream.take();
    if (told.text && *told.text != replay.text) {
        refuse("text is not the text of its tokenIds");
    }
    if (!replay.tokens.empty()) {
        request.replay = std::make_shared<const Replay>(std::move(replay));
    }
}

std::span<const Token> input_of(const Request & request) {
    return request.replay ? request.replay->input : request.prompt;
}

std::span<const Token> replayed(const Request & request) {
    return request.replay ? std::span<const Token>(request.replay->tokens) : std::span<const Token>();
}

} // namespace headrace
