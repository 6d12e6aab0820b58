// Which files make up a model that was split into shards, and in which order they belong.
//
// Counterparts: model_file.cpp, which reads the headers; web/models/split.js and headrace/models/split.py, which
// judge shards before they are fetched. Opens no file.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace headrace {

// Where a file stands among the shards of its model, as its header says; a whole model is shard 0 of 1.
struct ShardPlace {
    size_t index = 0;
    size_t count = 1;
};

struct Shard {
    std::string path;
    ShardPlace  place;
};

// The last part of a path.
std::string file_name(const std::string & path);

// The paths of all shards of a model, by the name of one: "x-00002-of-00003.gguf". Nothing if the name does not
// say what the place does.
std::optional<std::vector<std::string>> sibling_paths(const Shard & shard);

// The order of loading, as indices into the list. Throws Error (invalid_request) unless the list is a whole
// model: one file, or every shard of one model once. The message names what is missing, doubled or foreign.
std::vector<size_t> shard_order(const std::vector<Shard> & shards);

} // namespace headrace
