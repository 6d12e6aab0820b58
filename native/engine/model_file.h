// Looks at a model file before llama.cpp does, and says in one sentence what is wrong with it.
//
// Reads the header only. The page looks at the first bytes even earlier: web/models/gguf.js.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace headrace {

// A model's files in the order of loading.
struct CheckedModel {
    std::vector<std::string> paths;
    size_t                   alignment = 0; // of the tensors' data in bytes, the least of all files

    // Of the table that turns tokens into vectors; rows of it are 0 if there is none.
    ggml_type embedding_type  = GGML_TYPE_F32;
    int64_t   embedding_width = 0;
    int64_t   embedding_rows  = 0;
};

// paths: one file, or the shards of one model in any order. Of a single shard the others are found by its name.
// Throws Error (model_not_found, model_invalid, model_truncated, invalid_request) unless they look loadable.
CheckedModel check_model_files(const std::vector<std::string> & paths);

} // namespace headrace
