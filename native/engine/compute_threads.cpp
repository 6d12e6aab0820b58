// The ggml calls behind compute_threads.h.
#include "engine/compute_threads.h"

#include "engine/error.h"

#include <string>

namespace headrace {

ComputeThreads start_compute_threads(int64_t count) {
    ggml_threadpool_params params = ggml_threadpool_params_default(static_cast<int>(count));
    params.poll = 1; // between two passes threads sleep soon: the core may be needed elsewhere
    ComputeThreads pool(ggml_threadpool_new(&params));
    if (!pool) {
        throw Error(ErrorCode::out_of_memory, "cannot start " + std::to_string(count) + " compute threads");
    }
    return pool;
}

} // namespace headrace
