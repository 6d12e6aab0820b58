// The callback behind graph_recorder.h.
#include "engine/graph_recorder.h"

#include "engine/op_watch.h"

#include <algorithm>
#include <utility>

namespace headrace {

namespace {

int64_t data_of(const GraphOp & op) {
    int64_t elements = 0;
    for (const Operand & operand : op.operands) {
        elements += operand.elements();
    }
    return elements;
}

// What ggml-webgpu computes in one kernel, as ggml_webgpu_can_fuse_rms_norm_mul() has it.
bool fuses(const ggml_tensor & norm, const ggml_tensor & node) {
    const bool first = node.src[0] == &norm, second = node.src[1] == &norm;
    if (node.op != GGML_OP_MUL || (!first && !second) || !ggml_are_same_shape(&node, &norm) ||
        norm.view_src || (norm.flags & GGML_TENSOR_FLAG_OUTPUT) != 0) {
        return false;
    }
    const auto plain = [](const ggml_tensor & tensor) {
        return tensor.type == GGML_TYPE_F32 && ggml_is_contiguous_rows(&tensor);
    };
    return node.type == GGML_TYPE_F32 && plain(*node.src[0]) && plain(*node.src[1]) &&
           (first || ggml_are_same_shape(node.src[0], &norm)) && node.src[0] != node.src[1];
}

} // namespace

GraphRecorder::GraphRecorder(Concerns concerns) : concerns_(std::move(concerns)) {}

void GraphRecorder::begin() {
    flush();
    pairs_.clear();
}

const std::vector<GraphOp> & GraphRecorder::ops() {
    flush();
    return ops_;
}

void GraphRecorder::flush() {
    if (std::exchange(norm_, nullptr)) {
        add(std::move(alone_));
    }
}

bool GraphRecorder::on_node(ggml_tensor * node, bool ask, void * user) {
    if (ask) {
        static_cast<GraphRecorder *>(user)->see(*node);
    }
    return !ask; // nothing is to be looked at; what was, may go on
}

void GraphRecorder::see(const ggml_tensor & node) {
    part(node);
    const bool ours = computes(node) && concerns_(node);
    if (ours && norm_ && fuses(*norm_, node)) {
        pairs_.push_back({norm_, &node});
        add(describe_pair(*std::exchange(norm_, nullptr), node));
        return;
    }
    flush();
    if (ours && node.op == GGML_OP_RMS_NORM) {
        norm_  = &node; // waits for the node after it
        alone_ = describe_op(node);
    } else if (ours) {
        add(describe_op(node));
    }
}

// A node that reads a norm which is one half of a pair: then they are two kernels after all.
void GraphRecorder::part(const ggml_tensor & node) {
    for (const ggml_tensor * source : node.src) {
        const ggml_tensor * read = source && source->view_src ? source->view_src : source;
        const auto          pair = std::find_if(pairs_.begin(), pairs_.end(),
                                                [&](const Pair & known) { return known.norm == read; });
        if (read && pair != pairs_.end()) {
            add(describe_op(*pair->norm));
            add(describe_op(*pair->product));
            pairs_.erase(pair);
        }
    }
}

void GraphRecorder::add(GraphOp op) {
    GraphOp longer             = lengthen(op);
    op                         = shrink(std::move(op));
    const auto [known, is_new] = by_signature_.emplace(signature(op), ops_.size());
    if (is_new) {
        ops_.push_back(std::move(op));
    } else if (data_of(op) > data_of(ops_[known->second])) {
        ops_[known->second] = std::move(op);
    }
    if (!longer.steps.empty()) {
        add(std::move(longer));
    }
}

} // namespace headrace
