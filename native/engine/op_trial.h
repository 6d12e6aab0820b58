// One operation, computed on one backend with given data.
//
// Counterpart: gpu_self_test.h, which compares two of them. Lays its tensors out as the operation says, without
// ggml's allocator, so that what lay over what in the model does so here.
#pragma once

#include "engine/graph_op.h"

#include <ggml-backend.h>
#include <ggml-cpp.h>

#include <cstdint>
#include <vector>

namespace headrace {

class OpTrial {
  public:
    // Throws Error (out_of_memory).
    OpTrial(const GraphOp & op, ggml_backend_t backend);

    // Whether the backend would compute it. Else it must not be computed: nothing might happen, without an error.
    bool is_supported() const;

    // Everything in the block that the output lies in, afterwards. blocks: see make_inputs().
    // Throws Error (gpu_failed).
    std::vector<uint8_t> compute(const std::vector<std::vector<uint8_t>> & blocks);

  private:
    void make_tensors();
    void allocate();

    const GraphOp &            op_;
    ggml_backend_t             backend_;
    ggml_context_ptr           context_;
    std::vector<ggml_tensor *> tensors_; // of the operands
    std::vector<ggml_tensor *> blocks_;  // bytes
    ggml_backend_buffer_ptr    buffer_;  // null: the backend has no buffers of that size
};

} // namespace headrace
