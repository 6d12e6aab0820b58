// Regular expressions that a grammar cannot stand for are refused. What those that pass are worth is tested in
// schema_check_test.cpp.
#include "chat/pattern_check.h"

#include <doctest/doctest.h>

#include <vector>

using headrace::pattern_trouble;

TEST_CASE("pattern_check: what a grammar can say passes") {
    for (const char * pattern :
         {"^$", "^abc$", "^a*b+c?$", "^(a|b|)c$", "^[A-Za-z_-]{3,8}$", "^x{2,}$", "^\\(\\.\\)$",
          "^[\\u0041-\\u005A]$", "^.+@.+$", "^((a)(?:b))*$", "^é[éà]*$", "^[a-]$"}) {
        CAPTURE(pattern);
        CHECK(pattern_trouble(pattern) == "");
    }
}

TEST_CASE("pattern_check: everything else is refused") {
    const std::vector<std::string> patterns = {"",
                                               "^",
                                               "abc",
                                               "^abc",
                                               "abc$",
                                               "^a\\$",
                                               "^(a$",
                                               "^a)$",
                                               "^(?=a)$",
                                               "^(?<n>a)$",
                                               "^[a$",
                                               "^[]$",
                                               "^[^a]$",
                                               "^a**$",
                                               "^a+?$",
                                               "^*$",
                                               "^|*$",
                                               "^(*)$",
                                               "^a{$",
                                               "^a{x}$",
                                               "^a{2,1}$",
                                               "^a{,3}$",
                                               "^a{0}$",
                                               "^a{5000}$",
                                               "^a^b$",
                                               "^a$b$",
                                               "^]$",
                                               "^a}$",
                                               "^\\d$",
                                               "^\\w+$",
                                               "^\\bfoo$",
                                               "^[\\d]$",
                                               "^(a)\\1$",
                                               "^a\"b$",
                                               "^a\\\\b$",
                                               "^\n$",
                                               "^\\n$",
                                               "^[ -~]$",
                                               "^[A-z]$",
                                               "^[\"]$",
                                               "^[\\x00-\\x20]$",
                                               "^[z-a]$",
                                               "^\\xZZ$",
                                               "^\\.*$",
                                               "^é*$",
                                               "^" + std::string(20, '(') + std::string(20, ')') + "$",
                                               "^" + std::string(2000, 'a') + "$"};
    for (const std::string & pattern : patterns) {
        CAPTURE(pattern);
        CHECK(pattern_trouble(pattern) != "");
    }
}
