// Logits in, token out: llama.cpp's samplers in llama.cpp's own order.
//
// logit bias → penalties → DRY → top-n-sigma → top-k → typical-p → top-p → min-p → XTC → (dynamic) temperature
// → draw. With mirostat: logit bias → penalties → DRY → temperature → mirostat. With temperature 0: logit bias
// → penalties → DRY → likeliest. A grammar has the last word: a token that it refuses is drawn anew among those
// it allows.
#pragma once

#include "engine/grammar.h"
#include "engine/logprobs.h"
#include "engine/request.h"

#include <llama-cpp.h>

#include <optional>
#include <span>
#include <vector>

namespace headrace {

class Vocabulary;
struct LogitScan;

// Refuses sampling options that only a vocabulary can tell to be wrong, before a request is queued.
// Throws Error (invalid_option, grammar_invalid).
void check_sampling(const Request & request, const Vocabulary & vocabulary);

class Sampler {
  public:
    // Takes from the request its options, its grammar, the prompt that the penalties look back on, and the tokens
    // that were generated before. Its seed is not negative: whoever wants a new one each time has drawn it
    // already. The vocabulary outlives this.
    // Throws Error (grammar_invalid, unsupported_operation).
    Sampler(const Request & request, const Vocabulary & vocabulary);

    // Chooses a token and takes note of it. Throws Error: numeric_fault when the logits cannot be those of a
    // working model, grammar_invalid when no token of the vocabulary can follow.
    Token sample(std::span<const float> logits);

    // Whether the grammar is complete after the last token, and nothing can follow.
    bool ended() const { return grammar_ && grammar_->ended(); }

    // Of the last token, when the request asks for them.
    const std::optional<TokenLogprobs> & logprobs() const { return logprobs_; }

  private:
    void  take_note(Token token);
    Token choose(std::span<const float> logits, const LogitScan & scan);
    Token run_chain();
    void  gather(std::span<const float> logits, size_t count);
    void  gather_all(std::span<const float> logits);

    const Vocabulary *            vocabulary_;
    llama_sampler_ptr             chain_;
    std::optional<GrammarMatcher> grammar_;
    HealthWatch                   watch_;
    bool                          wants_logprobs_;
    size_t                        top_logprobs_;
    bool                         only_likeliest_; // the chain takes the likeliest token, whatever came before
    size_t                       enough_;         // highest logits that the chain can choose among; 0: all
    std::optional<TokenLogprobs> logprobs_;
    std::vector<llama_token_data> candidates_; // reused
    std::vector<float>            maxima_;     // of the row's blocks; reused
    std::vector<float>            order_;      // reused
};

} // namespace headrace
