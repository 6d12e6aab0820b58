// An answer that goes on where another engine left it: after a crash the host submits the request again, with
// what it was told of the answer.
//
// The tokens told are computed like a prompt's, accepted by samplers and grammar, and count as generated; events
// tell only what follows them. Followed once, before the request is queued; scheduler.cpp puts the outcome
// into a slot. A chat's parts (reasoning, calls) are continued by chat/chat_reply.h.
//
// Greedy answers are those of an engine that never stopped, but for the rounding that depends on what shares a
// pass, and for a context that has slid: what is left of it is computed anew, without what slid out. With a
// temperature the random numbers go on where they were, too, but rounding alone may move a draw to another
// token; and with a grammar (which may have had a token drawn twice), XTC and mirostat (whose state depends on
// logits that are gone) the answer goes on with other draws. The same seed promises nothing there.
#pragma once

#include "engine/decoder.h"
#include "engine/logprobs.h"
#include "engine/request.h"
#include "engine/text_stream.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace headrace {

// What a host was told of an answer.
struct ToldAnswer {
    std::vector<Token>         tokens;
    std::optional<std::string> text;     // with these tokens; none where a chat has told its parts instead
    std::vector<TokenLogprobs> logprobs; // of the tokens, where the request asks for them
    double                     elapsed_ms = 0; // since the request was first submitted
};

// Where that answer stands.
struct Replay {
    std::vector<Token>          tokens;
    std::vector<TokenLogprobs>  logprobs;
    std::vector<Token>          input;  // the prompt alone: Request::prompt has the tokens behind it
    TextStream                  stream; // has taken the tokens' text in
    std::string                 text;   // that the tokens have released
    std::optional<FinishReason> ended;  // the answer is complete already
};

// Makes the request go on behind what was told. Throws Error (invalid_request) when the request cannot have led
// to such an answer: a token that is none, that the grammar refuses or that follows the end, another text.
void follow_replay(Request & request, ToldAnswer told, const Vocabulary & vocabulary, size_t context);

// The tokens of the prompt alone.
std::span<const Token> input_of(const Request & request);

// The tokens that were generated before.
std::span<const Token> replayed(const Request & request);

} // namespace headrace
