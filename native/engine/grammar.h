// A grammar at work: which tokens may come next.
//
// GBNF compiled and followed by llama.cpp's own parser (src/llama-grammar.h; its public sampler tells neither
// why a grammar was refused nor when it has ended). What that parser would crash, hang or run out of memory on
// is refused before it sees it: see grammar_check.h. Asked by sampling.cpp.
#pragma once

#include "engine/request.h"

#include <llama.h>

#include <memory>
#include <string>
#include <vector>

struct llama_grammar;

namespace headrace {

struct LlamaGrammarDeleter {
    void operator()(llama_grammar * grammar) const;
};

class GrammarMatcher {
  public:
    // The vocabulary outlives this. Throws Error (grammar_invalid).
    // ends: tokens that end the generation besides the vocabulary's own. texts: control tokens that are text all
    // the same; other control tokens are allowed only by a grammar that names tokens.
    GrammarMatcher(const Grammar & grammar, const llama_vocab * vocabulary, std::vector<Token> ends,
                   std::vector<Token> texts);

    bool allows(Token token) const;

    // Drops the candidates that may not come next.
    void restrict(std::vector<llama_token_data> & candidates) const;

    // Takes note of a token that is allowed. Throws Error (grammar_invalid) where the grammar becomes too
    // ambiguous to be followed.
    void accept(Token token);

    // Whether the text is complete and nothing can follow.
    bool ended() const;

  private:
    bool may_end() const;
    bool is_foreign(Token token) const;
    void check_readings() const;

    std::unique_ptr<llama_grammar, LlamaGrammarDeleter> grammar_;
    const llama_vocab *                                 vocabulary_;
    std::vector<Token>                                  ends_;
    std::vector<Token>                                  texts_;
    bool                                                names_tokens_ = false;
    size_t                                              max_readings_ = 0;
};

} // namespace headrace
