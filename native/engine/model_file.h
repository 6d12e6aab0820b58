// Looks at a model file before llama.cpp does, and says in one sentence what is wrong with it.
//
// Reads the header only. The page looks at the first bytes even earlier: web/models/gguf.js.
#pragma once

#include <cstddef>
#include <string>

namespace headrace {

// Returns the alignment of the tensors' data in bytes.
// Throws Error (model_not_found, model_invalid, model_truncated) unless the file looks loadable.
size_t check_model_file(const std::string & path);

} // namespace headrace
