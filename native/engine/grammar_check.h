// Whether a GBNF grammar can be handed to llama.cpp's parser.
//
// That parser is written for grammars of good will. Here is refused, with the reason and the place: what it
// does not accept; what it would loosen without a word (a repetition of more than 2000 becomes one without end);
// and what would crash it, hang it or fill the memory: deep nesting, {5,2}, long things repeated often,
// recursion to the left in all its disguises, rules that branch into millions of beginnings.
#pragma once

#include <llama.h>

#include <string>

namespace headrace {

constexpr size_t MAX_GRAMMAR_BYTES       = 262144;
constexpr size_t MAX_GRAMMAR_NESTING     = 100;  // brackets inside each other
constexpr size_t MAX_GRAMMAR_REPETITIONS = 2000; // of {m,n}
constexpr size_t MAX_GRAMMAR_ELEMENTS = 1000000; // characters, ranges and references, repetitions written out
constexpr size_t MAX_GRAMMAR_BRANCHES = 10000;   // ways in which one rule can begin
constexpr size_t MAX_GRAMMAR_DEPTH    = 2000;    // rules that begin with each other

// Throws Error (grammar_invalid). vocabulary: what <token> in a grammar refers to.
void check_grammar(const std::string & text, const llama_vocab * vocabulary);

} // namespace headrace
