// The pool of compute threads that all contexts of one engine share.
//
// One pool, not one per context: contexts never compute at the same time, and a page starts as many threads
// as one pool has. A pool ends before the contexts it worked for: after an abort, its threads may still be at
// work on their memory.
#pragma once

#include <ggml-cpu.h>

#include <cstdint>
#include <memory>

namespace headrace {

struct ThreadpoolDeleter {
    void operator()(ggml_threadpool * pool) const { ggml_threadpool_free(pool); }
};

using ComputeThreads = std::unique_ptr<ggml_threadpool, ThreadpoolDeleter>;

// Throws Error (out_of_memory).
ComputeThreads start_compute_threads(int64_t count);

} // namespace headrace
