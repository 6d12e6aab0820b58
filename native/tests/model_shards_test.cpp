// Shards are put in order by what their headers say, and an incomplete set is refused by name (cases F10, F14).
#include "engine/model_shards.h"

#include "engine/error.h"

#include <doctest/doctest.h>

#include <string>

using namespace headrace;

namespace {

std::string refusal(const std::vector<Shard> & shards) {
    try {
        shard_order(shards);
    } catch (const Error & error) {
        CHECK(error.code == ErrorCode::invalid_request);
        return error.what();
    }
    return "";
}

} // namespace

TEST_CASE("model shards: any order is put right (case F10)") {
    CHECK(shard_order({{"/x/c", {2, 3}}, {"/x/a", {0, 3}}, {"/x/b", {1, 3}}}) ==
          std::vector<size_t>{1, 2, 0});
    CHECK(shard_order({{"/x/model.gguf", {}}}) == std::vector<size_t>{0});
}

TEST_CASE("model shards: what is missing, doubled or foreign is named (case F14)") {
    CHECK(refusal({{"/x/c", {2, 4}}, {"/x/a", {0, 4}}}) ==
          "c is shard 3 of 4: all of them are needed, missing 2, 4");
    CHECK(refusal({{"/x/b", {1, 2}}}) == "b is shard 2 of 2: all of them are needed, missing 1");
    CHECK(refusal({{"/x/a", {0, 2}}, {"/y/a2", {0, 2}}}) == "a2 is shard 1 of 2, and so is a");
    CHECK(refusal({{"/x/a", {0, 2}}, {"/x/b", {1, 3}}}) ==
          "a is shard 1 of 2, but b is shard 2 of 3: they are not of one model");
    CHECK(refusal({{"/x/a", {0, 2}}, {"/x/whole", {}}}) ==
          "whole is no shard: a list of files must be the shards of one model");
    CHECK(refusal({{"/x/whole", {}}, {"/x/other", {}}}) ==
          "whole is no shard: a list of files must be the shards of one model");
}

TEST_CASE("model shards: the name of one tells those of all (cases F11, F13)") {
    const std::vector<std::string> both{"/x/m-00001-of-00002.gguf", "/x/m-00002-of-00002.gguf"};
    CHECK(sibling_paths({both[1], {1, 2}}) == both);
    CHECK(sibling_paths({"m-00001-of-00002.GGUF", {0, 2}}) ==
          std::vector<std::string>{"m-00001-of-00002.GGUF", "m-00002-of-00002.GGUF"});
    CHECK(!sibling_paths({both[0], {1, 2}})); // renamed: the header knows better
    CHECK(!sibling_paths({"/x/model.gguf", {0, 2}}));
    CHECK(!sibling_paths({"/x/m-00001-of-00002", {0, 2}}));
}
