// The callbacks behind op_watch.h.
#include "engine/op_watch.h"

#include <ggml-cpu.h>

#include <algorithm>
#include <utility>

namespace headrace {

namespace {

// Signalling NaNs of f32 and bf16, and of f16: arithmetic returns quiet ones, so that a NaN which was computed,
// from whatever weights, is never taken for one that was left. Integers are as unlikely.
constexpr uint16_t LEFT_ALONE     = 0x7FA5;
constexpr uint16_t LEFT_ALONE_F16 = 0x7DA5;

ggml_backend_buffer_t buffer_of(const ggml_tensor & node) {
    return node.view_src ? node.view_src->buffer : node.buffer;
}

std::string device_name(const ggml_tensor & node) {
    const ggml_backend_dev_t device = device_of(node);
    return device ? ggml_backend_dev_name(device) : "unknown";
}

std::string inputs_of(const ggml_tensor & node) {
    std::string inputs;
    for (const ggml_tensor * source : node.src) {
        if (source) {
            inputs += inputs.empty() ? "" : " × ";
            inputs += ggml_type_name(source->type);
        }
    }
    return inputs;
}

// Whether the output can be computed elsewhere first: the host reaches it, its elements can be compared, and it
// is no change to an input.
bool provable(const ggml_tensor & node) {
    const size_t                size   = ggml_type_size(node.type);
    const ggml_backend_buffer_t buffer = buffer_of(node);
    const bool writes_only = !node.view_src || node.op == GGML_OP_CPY || node.op == GGML_OP_SET_ROWS;
    return writes_only && node.data && buffer && ggml_backend_buffer_is_host(buffer) &&
           !ggml_is_quantized(node.type) && (size == 2 || size == 4 || size == 8) &&
           ggml_is_contiguous(&node);
}

uint64_t pattern_of(ggml_type type) {
    return (type == GGML_TYPE_F16 ? LEFT_ALONE_F16 : LEFT_ALONE) * 0x0001000100010001ull;
}

// Copies the elements that are not the pattern. Returns how many are.
template <class Word> size_t merge_words(const void * from, void * to, size_t count, uint64_t pattern) {
    const Word   left      = static_cast<Word>(pattern);
    const Word * source    = static_cast<const Word *>(from);
    Word *       target    = static_cast<Word *>(to);
    size_t       untouched = 0;
    for (size_t i = 0; i < count; i++) {
        if (source[i] == left) {
            untouched++;
        } else {
            target[i] = source[i];
        }
    }
    return untouched;
}

size_t merge(const ggml_tensor & node, void * home) {
    const size_t   count   = static_cast<size_t>(ggml_nelements(&node));
    const uint64_t pattern = pattern_of(node.type);
    switch (ggml_type_size(node.type)) {
        case 2: return merge_words<uint16_t>(node.data, home, count, pattern);
        case 4: return merge_words<uint32_t>(node.data, home, count, pattern);
        default: return merge_words<uint64_t>(node.data, home, count, pattern);
    }
}

// Elements that a kernel may leave: SET_ROWS writes some rows of many, the same one twice if it is told to.
size_t may_leave(const ggml_tensor & node) {
    return node.op == GGML_OP_SET_ROWS ? static_cast<size_t>(ggml_nelements(&node)) - 1 : 0;
}

} // namespace

bool computes(const ggml_tensor & node) {
    switch (node.op) {
        case GGML_OP_NONE:
        case GGML_OP_VIEW:
        case GGML_OP_RESHAPE:
        case GGML_OP_PERMUTE:
        case GGML_OP_TRANSPOSE: return false;
        default: return !ggml_is_empty(&node) && (node.flags & GGML_TENSOR_FLAG_COMPUTE) != 0;
    }
}

ggml_backend_dev_t device_of(const ggml_tensor & node) {
    const ggml_backend_buffer_t buffer = buffer_of(node);
    const ggml_backend_dev_t    device =
        buffer ? ggml_backend_buft_get_device(ggml_backend_buffer_get_type(buffer)) : nullptr;
    // The CPU's own buffer type names no device.
    const bool plain = buffer && !device && ggml_backend_buffer_is_host(buffer);
    return plain ? ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) : device;
}

bool is_on_gpu(const ggml_tensor & node) {
    const ggml_backend_dev_t device = device_of(node);
    return device && ggml_backend_dev_type(device) != GGML_BACKEND_DEVICE_TYPE_CPU &&
           ggml_backend_dev_type(device) != GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

std::string kernel_of(const ggml_tensor & node) {
    if (node.op != GGML_OP_MUL_MAT && node.op != GGML_OP_MUL_MAT_ID) {
        return ggml_op_desc(&node);
    }
    const ggml_tensor &         weights = *node.src[0];
    const ggml_backend_buffer_t buffer  = buffer_of(weights);
    if (buffer && !ggml_backend_buffer_is_host(buffer)) {
        return ggml_backend_buft_name(ggml_backend_buffer_get_type(buffer));
    }
    const ggml_type other = ggml_get_type_traits_cpu(weights.type)->vec_dot_type;
    return std::string("vec_dot ") + ggml_type_name(weights.type) + " × " + ggml_type_name(other);
}

bool OpWatch::device_supports(const ggml_tensor & node) {
    // The CPU says yes to whatever it has not heard of.
    const bool known = node.op < GGML_OP_COUNT &&
                       (node.op != GGML_OP_GLU || ggml_get_glu_op(&node) < GGML_GLU_OP_COUNT) &&
                       (node.op != GGML_OP_UNARY || ggml_get_unary_op(&node) < GGML_UNARY_OP_COUNT);
    const ggml_backend_dev_t device = device_of(node);
    return known && (!device || ggml_backend_dev_supports_op(device, &node));
}

OpWatch::OpWatch(Supports supports) : supports_(std::move(supports)) {}

void OpWatch::begin(const std::string & phase, Stepping stepping) {
    phase_    = phase;
    stepping_ = stepping;
}

bool OpWatch::on_node(ggml_tensor * node, bool ask, void * user) {
    OpWatch & watch = *static_cast<OpWatch *>(user);
    return ask ? watch.before(*node) : watch.after(*node);
}

// Whether the node is to be computed now, and seen afterwards; else together with the next.
bool OpWatch::before(ggml_tensor & node) {
    // A pass that an abort has ended leaves its node behind; that graph is gone.
    diverted_ = nullptr;
    if (!computes(node)) {
        return false;
    }
    list(node);
    if (!supports_(node)) {
        report(node, "its device does not support it");
    }
    if (stepping_ == Stepping::fused && node.op == GGML_OP_RMS_NORM) {
        return false;
    }
    if (is_on_gpu(node)) {
        return false; // nothing of it can be seen, and a wait after each node takes longer than the node
    }
    if (provable(node)) {
        divert_output(node);
    }
    return true;
}

void OpWatch::list(const ggml_tensor & node) {
    AuditedOp  op{phase_,
                  ggml_op_name(node.op),
                  inputs_of(node),
                  ggml_type_name(node.type),
                  device_name(node),
                  kernel_of(node),
                  1};
    const auto same = std::find_if(ops_.begin(), ops_.end(), [&](const AuditedOp & known) {
        return known.phase == op.phase && known.op == op.op && known.inputs == op.inputs &&
               known.output == op.output && known.backend == op.backend && known.kernel == op.kernel;
    });
    if (same == ops_.end()) {
        ops_.push_back(std::move(op));
    } else {
        same->count++;
    }
}

// Not filled where it is: there it may lie over one of the node's own inputs.
void OpWatch::divert_output(ggml_tensor & node) {
    const size_t words = (ggml_nbytes(&node) + sizeof(uint64_t) - 1) / sizeof(uint64_t);
    stand_in_.assign(words + 8, pattern_of(node.type));
    const size_t past = reinterpret_cast<uintptr_t>(stand_in_.data()) % 64;
    diverted_         = &node;
    home_             = std::exchange(node.data, stand_in_.data() + (past ? (64 - past) / 8 : 0));
}

// Whether to go on: once an output is known to be wrong, what follows is of no use.
bool OpWatch::after(ggml_tensor & node) {
    if (diverted_ == &node) {
        const size_t untouched = merge(node, home_);
        if (untouched > may_leave(node)) {
            report(node, std::to_string(untouched) + " of " + std::to_string(ggml_nelements(&node)) +
                             " values were left as they were");
        } else {
            proven_++;
        }
        node.data = home_;
        diverted_ = nullptr;
    }
    return !missing_;
}

void OpWatch::report(const ggml_tensor & node, const std::string & reason) {
    if (missing_) {
        return;
    }
    const std::string name = ggml_op_name(node.op), kernel = kernel_of(node), inputs = inputs_of(node);
    missing_.emplace(ErrorCode::kernel_missing,
                     "nothing computes " + name + (kernel == name ? "" : " (" + kernel + ")") + " on " +
                         inputs + " in the " + phase_ + " graph, at \"" + node.name + "\": " + reason,
                     ErrorDetail{{"op", name},
                                 {"kernel", kernel},
                                 {"inputs", inputs},
                                 {"backend", device_name(node)},
                                 {"phase", phase_},
                                 {"node", std::string(node.name)}});
}

void OpWatch::check() const {
    if (missing_) {
        throw *missing_;
    }
}

} // namespace headrace
