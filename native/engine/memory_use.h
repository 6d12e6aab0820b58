// What a model and a context of it occupy, as llama.cpp counts it.
#pragma once

#include <cstdint>

struct llama_context;

namespace headrace {

// Bytes: of the tensors, of the KV cache or recurrent state, and of what forward passes compute in.
struct MemoryUse {
    uint64_t model   = 0;
    uint64_t context = 0;
    uint64_t compute = 0;

    MemoryUse & operator+=(const MemoryUse & other) {
        model += other.model;
        context += other.context;
        compute += other.compute;
        return *this;
    }
};

// Of the context and the model it was made of.
MemoryUse memory_use(const llama_context * context);

} // namespace headrace
