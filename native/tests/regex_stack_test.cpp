// A call on a stack of its own: deep recursion, and what it throws.
#include "engine/regex_stack.h"

#include "engine/error.h"

#include <doctest/doctest.h>

using namespace headrace;

// As deep as a regular expression goes, and as heavy: some 300 bytes a level.
static int descend(int levels) {
    volatile char frame[256];
    frame[levels % 256] = 1;
    return levels == 0 ? 0 : descend(levels - 1) + frame[levels % 256];
}

TEST_CASE("regex_stack: one level of recursion per byte of a large text") {
    constexpr int bytes = 1000000;
    int           depth = 0;
    with_regex_stack(bytes, [&] { depth = descend(bytes); });
    CHECK(depth == bytes);
}

TEST_CASE("regex_stack: what a call throws arrives, whatever the size of the text") {
    for (const size_t bytes : {10, 100000}) {
        try {
            with_regex_stack(bytes, [] { throw Error(ErrorCode::numeric_fault, "so"); });
            FAIL("nothing was thrown");
        } catch (const Error & error) {
            CHECK(error.code == ErrorCode::numeric_fault);
        }
    }
}

TEST_CASE("regex_stack: no room is an error") {
    bool called = false;
    try {
        with_regex_stack(size_t{1} << 50, [&] { called = true; });
        FAIL("nothing was thrown");
    } catch (const Error & error) {
        CHECK(error.code == ErrorCode::out_of_memory);
    }
    CHECK_FALSE(called);
}
