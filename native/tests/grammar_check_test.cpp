// Which grammars are refused before llama.cpp's parser could crash, hang or loosen them.
#include "engine/grammar_check.h"

#include "engine/error.h"

#include <doctest/doctest.h>

#include <chrono>
#include <sstream>

using namespace headrace;

namespace {

// The complaint, or nothing.
std::string complaint(const std::string & text) {
    try {
        check_grammar(text, nullptr);
        return "";
    } catch (const Error & error) {
        CHECK(error.code == ErrorCode::grammar_invalid);
        CHECK(std::string(error.what()).size() < 400);
        return error.what();
    }
}

bool complains(const std::string & text, const std::string & of) {
    const std::string said  = complaint(text);
    const bool        found = said.find(of) != std::string::npos;
    INFO("said: ", said);
    CHECK(found);
    return found;
}

std::string repeated(const std::string & text, size_t times) {
    std::string all;
    for (size_t i = 0; i < times; i++) {
        all += text;
    }
    return all;
}

} // namespace

TEST_CASE("grammar_check: grammars that llama.cpp follows are let through") {
    for (const char * text : {
             "root ::= \"yes\" | \"no\"",
             "# a comment with { and (\n\nroot ::= item+ # another\nitem ::= [a-z]{2,5} \" \" \n",
             "root ::= \"{\" ws \"\\\"\" [^\"\\\\{(]* \"\\\"\" ws \"}\"\nws ::= [ \\t\\n]*",
             "root ::= value\nvalue ::= \"[\" (value (\",\" value)*)? \"]\" | [0-9]+",
             "root ::= \"a\" root | \"\"",
             "root ::= ws* \"x\"\nws ::= [ ]?", // begins with itself, with nothing behind
             "root ::= (\n  \"a\" |\n  \"b\"\n) {3}",
             "root ::= \"x\"{0,2000}",
             "root ::= <[7]> !<[8]>",
             "root ::= ((\"a\"{100}){100}){100}", // small as rules
             "root ::= [\\]\\\\-] .",
         }) {
        CHECK(complaint(text) == "");
    }
}

TEST_CASE("grammar_check: what cannot be parsed is refused with its place") {
    CHECK(complains("", "no rule named root"));
    CHECK(complains("other ::= \"x\"", "no rule named root"));
    CHECK(complains("root ::= missing", "the rule missing is not defined"));
    CHECK(complains("no grammar at all", "line 1, byte 4: expecting ::="));
    CHECK(complains("root ::= \"x\"\nroot2 ::= (\"a\"", "line 2, byte 15: expecting ')'"));
    CHECK(complains("root ::= \"open", "unexpected end"));
    CHECK(complains("root ::= [a-", "unexpected end"));
    CHECK(complains("root ::= \"\\q\"", "unknown escape"));
    CHECK(complains("root ::= *", "expecting preceding item"));
    CHECK(complains("root ::= \"a\"{x}", "expecting an int"));
    CHECK(complains("root ::= <token>", "no vocab"));
    CHECK(complains(std::string("root ::= \"a\"\0 garbage", 21), "zero byte"));
    CHECK(complains("root ::= \"" + std::string(MAX_GRAMMAR_BYTES, 'x') + "\"", "longer than"));
}

TEST_CASE("grammar_check: recursion to the left is refused in every disguise") {
    CHECK(complains("root ::= root \"x\" | \"y\"", "begins with itself"));
    CHECK(complains("root ::= a\na ::= b \"x\"\nb ::= root | \"y\"", "begins with itself"));
    CHECK(complains("root ::= e root \"x\" | \"y\"\ne ::= \"z\"?", "begins with itself"));
    // llama.cpp's own check does not see that e may be empty, and never returns.
    CHECK(complains("root ::= e root \"x\" | \"y\"\ne ::= f f\nf ::= \"z\"*", "begins with itself"));
}

TEST_CASE("grammar_check: bombs are refused, and at once") {
    const auto before = std::chrono::steady_clock::now();
    CHECK(complains("root ::= \"a\"{1,100000000}", "more than 2000 repetitions"));
    CHECK(complains("root ::= \"a\"{99999999999999999999999}", "more than 2000 repetitions"));
    CHECK(complains("root ::= \"a\" {5,2}", "whose end is before its beginning"));
    CHECK(complains("root ::= ((\"a\"{0,100}){0,100}){0,100}", "sane defaults"));
    CHECK(complains("root ::= \"" + std::string(200000, 'x') + "\" {2000}", "too long"));
    CHECK(complains("root ::= " + repeated("\"a\"{2000} ", 20000), "too long"));
    CHECK(complains("root ::= " + std::string(100000, '('), "brackets inside each other"));
    CHECK(complains("root ::= " + repeated("(", 5000) + "\"x\"" + repeated(")", 5000), "brackets inside"));

    // r0 to r<count - 1> begin with the next rule in these ways, and the last one is "x".
    const auto chain = [](int count, const std::string & first, const std::string & second) {
        std::ostringstream text;
        text << "root ::= r0\n";
        for (int i = 0; i < count; i++) {
            text << 'r' << i << " ::= r" << i + 1 << first << " | r" << i + 1 << second << '\n';
        }
        text << 'r' << count << " ::= \"x\"";
        return text.str();
    };
    CHECK(complaint(chain(10, " \"a\"", " \"b\"")) == "");
    CHECK(complains(chain(5000, " | \"a\" # ", ""), "too complex"));
    CHECK(complains(chain(60, "", ""), "too complex"));
    CHECK(complains(chain(15, " \"a\"", " \"b\""), "too complex"));
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - before;
    CHECK(passed.count() < 20);
}
