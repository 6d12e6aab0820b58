// The ggml calls behind op_trial.h.
#include "engine/op_trial.h"

#include "engine/error.h"
#include "engine/shape_class.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace headrace {

namespace {

size_t aligned(size_t size, size_t alignment) {
    return (size + alignment - 1) / alignment * alignment;
}

ggml_context_ptr make_context(const GraphOp & op) {
    const size_t tensors = op.operands.size() + op.blocks;
    return ggml_context_ptr(
        ggml_init({tensors * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true}));
}

} // namespace

OpTrial::OpTrial(const GraphOp & op, ggml_backend_t backend)
    : op_(op), backend_(backend), context_(make_context(op)) {
    make_tensors();
    allocate();
}

void OpTrial::make_tensors() {
    for (const Operand & operand : op_.operands) {
        ggml_tensor * tensor =
            ggml_new_tensor(context_.get(), operand.type, GGML_MAX_DIMS, operand.ne.data());
        std::copy(operand.nb.begin(), operand.nb.end(), tensor->nb);
        tensors_.push_back(tensor);
    }
    for (const OpStep & step : op_.steps) {
        ggml_tensor * output = tensors_[step.output];
        output->op           = step.op;
        std::copy(step.params.begin(), step.params.end(), output->op_params);
        for (size_t i = 0; i < GGML_MAX_SRC; i++) {
            output->src[i] = step.sources[i] < 0 ? nullptr : tensors_[static_cast<size_t>(step.sources[i])];
        }
        ggml_set_name(output, step.name.c_str());
    }
}

void OpTrial::allocate() {
    const ggml_backend_buffer_type_t type      = ggml_backend_get_default_buffer_type(backend_);
    const size_t                     alignment = std::max(ggml_backend_buft_get_alignment(type), ALIGNMENT);
    std::vector<size_t>              sizes(op_.blocks);
    for (size_t i = 0; i < tensors_.size(); i++) {
        const Operand & operand = op_.operands[i];
        // Some kernels want room behind their output.
        const size_t end     = operand.offset + ggml_backend_buft_get_alloc_size(type, tensors_[i]);
        sizes[operand.block] = std::max(sizes[operand.block], aligned(end, alignment));
    }
    size_t total = 0;
    for (const size_t size : sizes) {
        total += size;
    }
    if (total > ggml_backend_buft_get_max_size(type)) {
        return;
    }
    buffer_.reset(ggml_backend_buft_alloc_buffer(type, total));
    if (!buffer_) {
        throw Error(ErrorCode::out_of_memory,
                    "there is no memory for " + std::to_string(total) + " bytes of the GPU's self-test",
                    {{"device", ggml_backend_name(backend_)}});
    }
    char *              base  = static_cast<char *>(ggml_backend_buffer_get_base(buffer_.get()));
    size_t              start = 0;
    std::vector<char *> places;
    for (const size_t size : sizes) {
        ggml_tensor * bytes = ggml_new_tensor_1d(context_.get(), GGML_TYPE_I8, static_cast<int64_t>(size));
        places.push_back(base + start);
        ggml_backend_tensor_alloc(buffer_.get(), bytes, places.back());
        blocks_.push_back(bytes);
        start += size;
    }
    for (size_t i = 0; i < tensors_.size(); i++) {
        const Operand & operand = op_.operands[i];
        ggml_backend_tensor_alloc(buffer_.get(), tensors_[i], places[operand.block] + operand.offset);
    }
}

bool OpTrial::is_supported() const {
    return buffer_ && std::all_of(op_.steps.begin(), op_.steps.end(), [&](const OpStep & step) {
               return ggml_backend_supports_op(backend_, tensors_[step.output]);
           });
}

std::vector<uint8_t> OpTrial::compute(const std::vector<std::vector<uint8_t>> & blocks) {
    for (size_t i = 0; i < blocks.size(); i++) {
        ggml_backend_tensor_set(blocks_[i], blocks[i].data(), 0, blocks[i].size());
    }
    ggml_cgraph * graph = ggml_new_graph(context_.get());
    ggml_build_forward_expand(graph, tensors_[op_.last().output]);
    const ggml_status status = ggml_backend_graph_compute(backend_, graph);
    if (status != GGML_STATUS_SUCCESS) {
        throw Error(ErrorCode::gpu_failed, std::string(ggml_backend_name(backend_)) + " cannot compute " +
                                               signature(op_) + ": " + ggml_status_to_string(status));
    }
    const size_t         block = op_.output().block;
    std::vector<uint8_t> result(blocks[block].size());
    ggml_backend_tensor_get(blocks_[block], result.data(), 0, result.size());
    return result;
}

} // namespace headrace
