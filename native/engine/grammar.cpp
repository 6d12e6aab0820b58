// The following of a grammar behind grammar.h.
#include "engine/grammar.h"

#include "engine/error.h"
#include "engine/grammar_check.h"
#include "engine/token_text.h"

#include <llama-grammar.h>

#include <algorithm>
#include <cmath>

namespace headrace {

void LlamaGrammarDeleter::operator()(llama_grammar * grammar) const {
    llama_grammar_free_impl(grammar);
}

// Ways in which the text so far may be read: each is tried for every candidate token. As many as a grammar
// begins with are always allowed.
constexpr size_t MAX_READINGS = 1000;

static llama_grammar * compile(const Grammar & grammar, const llama_vocab * vocabulary) {
    std::vector<const char *> patterns;
    for (const std::string & pattern : grammar.trigger_patterns) {
        patterns.push_back(pattern.c_str());
    }
    try {
        return llama_grammar_init_impl(vocabulary, grammar.text.c_str(), "root", grammar.lazy,
                                       patterns.data(), patterns.size(), grammar.trigger_tokens.data(),
                                       grammar.trigger_tokens.size());
    } catch (const std::exception & error) { // a trigger pattern that is no regular expression
        throw Error(ErrorCode::grammar_invalid, std::string("the grammar is not valid: ") + error.what());
    }
}

GrammarMatcher::GrammarMatcher(const Grammar & grammar, const llama_vocab * vocabulary,
                               std::vector<Token> ends, std::vector<Token> texts)
    : vocabulary_(vocabulary), ends_(std::move(ends)), texts_(std::move(texts)) {
    check_grammar(grammar.text, vocabulary);
    grammar_.reset(compile(grammar, vocabulary));
    if (!grammar_) {
        throw Error(ErrorCode::grammar_invalid, "the grammar is not valid");
    }
    max_readings_ = std::max(MAX_READINGS, grammar_->stacks.size());
    texts_.insert(texts_.end(), grammar.trigger_tokens.begin(), grammar.trigger_tokens.end());
    for (const llama_grammar_rule & rule : grammar_->rules) {
        for (const llama_grammar_element & element : rule) {
            names_tokens_ |= element.type == LLAMA_GRETYPE_TOKEN || element.type == LLAMA_GRETYPE_TOKEN_NOT;
        }
    }
    for (const Token token : grammar.prefill) {
        accept(token);
    }
}

bool GrammarMatcher::may_end() const {
    const llama_grammar_stacks & stacks = grammar_->stacks;
    return grammar_->awaiting_trigger ||
           std::any_of(stacks.begin(), stacks.end(), [](const auto & stack) { return stack.empty(); });
}

bool GrammarMatcher::ended() const {
    const llama_grammar_stacks & stacks = grammar_->stacks;
    return !grammar_->awaiting_trigger &&
           std::all_of(stacks.begin(), stacks.end(), [](const auto & stack) { return stack.empty(); });
}

// A control token has a text that a grammar may match, but none that is shown.
bool GrammarMatcher::is_foreign(Token token) const {
    return !names_tokens_ && llama_vocab_is_control(vocabulary_, token) &&
           !llama_vocab_is_eog(vocabulary_, token) &&
           std::find(texts_.begin(), texts_.end(), token) == texts_.end();
}

void GrammarMatcher::restrict(std::vector<llama_token_data> & candidates) const {
    if (grammar_->awaiting_trigger) {
        return;
    }
    std::vector<llama_token_data> last;
    if (may_end()) {
        std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(last), [&](const auto & item) {
            return std::find(ends_.begin(), ends_.end(), item.id) != ends_.end();
        });
    }
    std::erase_if(candidates, [&](const auto & item) {
        return is_foreign(item.id) || std::find(ends_.begin(), ends_.end(), item.id) != ends_.end();
    });
    llama_token_data_array array = {candidates.data(), candidates.size(), -1, false};
    llama_grammar_apply_impl(*grammar_, &array);
    std::erase_if(candidates, [](const auto & item) { return item.logit == -INFINITY; });
    candidates.insert(candidates.end(), last.begin(), last.end());
}

bool GrammarMatcher::allows(Token token) const {
    std::vector<llama_token_data> candidate{{token, 0.0f, 0.0f}};
    restrict(candidate);
    return !candidate.empty();
}

void GrammarMatcher::accept(Token token) {
    if (std::find(ends_.begin(), ends_.end(), token) != ends_.end()) {
        return;
    }
    try {
        if (grammar_->awaiting_trigger || names_tokens_) {
            llama_grammar_accept_impl(*grammar_, token);
            check_readings();
        } else if (!llama_vocab_is_eog(vocabulary_, token)) {
            // Byte by byte, as an ambiguous grammar may multiply its readings with each.
            for (const char byte : token_text(vocabulary_, token, /*special*/ true)) {
                llama_grammar_accept_str(*grammar_, std::string(1, byte));
                check_readings();
            }
        }
    } catch (const Error &) {
        throw;
    } catch (const std::runtime_error & error) { // what set off a lazy grammar does not follow it
        throw Error(ErrorCode::grammar_invalid, std::string("the answer left its grammar: ") + error.what());
    }
}

void GrammarMatcher::check_readings() const {
    if (grammar_->stacks.size() > max_readings_) {
        throw Error(ErrorCode::grammar_invalid,
                    "the grammar is too ambiguous: the answer so far can be read in more than " +
                        std::to_string(max_readings_) + " ways");
    }
}

} // namespace headrace
