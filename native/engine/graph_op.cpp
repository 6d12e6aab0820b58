// Describing and shrinking behind graph_op.h.
#include "engine/graph_op.h"

#include "engine/shape_class.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace headrace {

namespace {

// --- describing ---------------------------------------------------------------------------------

const ggml_tensor & root_of(const ggml_tensor & tensor) {
    return tensor.view_src ? *tensor.view_src : tensor;
}

uintptr_t address_of(const ggml_tensor & tensor) {
    return reinterpret_cast<uintptr_t>(tensor.data);
}

// Whether a change of one can be seen in the other, or they are parts of one tensor.
bool share_memory(const ggml_tensor & a, const ggml_tensor & b) {
    if (&root_of(a) == &root_of(b)) {
        return true;
    }
    return root_of(a).buffer == root_of(b).buffer && address_of(a) < address_of(b) + ggml_nbytes(&b) &&
           address_of(b) < address_of(a) + ggml_nbytes(&a);
}

size_t place_of(const std::vector<const ggml_tensor *> & tensors, const ggml_tensor & tensor) {
    return static_cast<size_t>(std::find(tensors.begin(), tensors.end(), &tensor) - tensors.begin());
}

// Numbers the blocks of memory in the order of the operands.
void place(GraphOp & op, const std::vector<const ggml_tensor *> & tensors) {
    std::vector<size_t> group(tensors.size());
    std::iota(group.begin(), group.end(), size_t{0});
    for (size_t i = 0; i < tensors.size(); i++) {
        for (size_t j = 0; j < i; j++) {
            if (group[i] != group[j] && share_memory(*tensors[i], *tensors[j])) {
                const auto [to, from] = std::minmax(group[i], group[j]);
                std::replace(group.begin(), group.end(), size_t{from}, size_t{to});
            }
        }
    }
    for (size_t first = 0; first < tensors.size(); first++) {
        if (group[first] != first) {
            continue;
        }
        uintptr_t base = UINTPTR_MAX, nearest = UINTPTR_MAX;
        for (size_t i = first; i < tensors.size(); i++) {
            if (group[i] == first) {
                base    = std::min(base, address_of(root_of(*tensors[i])));
                nearest = std::min(nearest, address_of(*tensors[i]));
            }
        }
        base += (nearest - base) / ALIGNMENT * ALIGNMENT;
        for (size_t i = first; i < tensors.size(); i++) {
            if (group[i] == first) {
                op.operands[i].block  = op.blocks;
                op.operands[i].offset = address_of(*tensors[i]) - base;
            }
        }
        op.blocks++;
    }
}

GraphOp describe(const std::vector<const ggml_tensor *> & nodes) {
    GraphOp                          op;
    std::vector<const ggml_tensor *> tensors;
    const auto                       number = [&](const ggml_tensor & tensor) {
        const size_t index = place_of(tensors, tensor);
        if (index == tensors.size()) {
            tensors.push_back(&tensor);
            Operand & operand = op.operands.emplace_back();
            operand.type      = tensor.type;
            std::copy_n(tensor.ne, GGML_MAX_DIMS, operand.ne.begin());
            std::copy_n(tensor.nb, GGML_MAX_DIMS, operand.nb.begin());
        }
        return index;
    };
    for (const ggml_tensor * node : nodes) {
        OpStep step;
        step.op   = node->op;
        step.name = ggml_op_desc(node);
        static_assert(sizeof(step.params) == sizeof(node->op_params));
        std::memcpy(step.params.data(), node->op_params, sizeof(node->op_params));
        for (size_t i = 0; i < GGML_MAX_SRC; i++) {
            step.sources[i] = node->src[i] ? static_cast<int>(number(*node->src[i])) : -1;
        }
        step.output = number(*node);
        op.steps.push_back(std::move(step));
    }
    place(op, tensors);
    return op;
}

// --- shrinking ----------------------------------------------------------------------------------

// New strides for new lengths: without gaps, in the order of the old ones.
void pack(Operand & operand) {
    size_t stride = ggml_type_size(operand.type);
    for (const size_t dimension : nearest_first(operand)) {
        operand.nb[dimension] = stride;
        stride *= units(operand, dimension);
    }
}

bool resizable(const GraphOp & op, const Operand * operand) {
    return operand && operand->is_contiguous() && op.alone(*operand);
}

void resize(GraphOp & op, const Operand * operand, size_t dimension, int64_t length) {
    Operand & changed     = op.operands[static_cast<size_t>(operand - op.operands.data())];
    changed.ne[dimension] = length;
    // Contiguous before, contiguous after: also along dimensions of length 1.
    changed.nb[0] = ggml_type_size(changed.type);
    changed.nb[1] = ggml_row_size(changed.type, changed.ne[0]);
    changed.nb[2] = changed.nb[1] * static_cast<size_t>(changed.ne[1]);
    changed.nb[3] = changed.nb[2] * static_cast<size_t>(changed.ne[2]);
}

// A workgroup of 256 takes four, eight or more elements of a row per turn: two turns, and what is left over.
int64_t shorter_row(int64_t length) {
    return length <= 2048 ? length : 2048 + length % 1024;
}

// The largest tile has 64 rows, most have 32 or less: more than one tile, and what is left over.
int64_t fewer_rows(int64_t count) {
    return count < 96 ? count : 64 + count % 32;
}

void shrink_product(GraphOp & op) {
    const Operand * weights = op.source(0, 0);
    const Operand * columns = op.source(0, 1);
    const Operand * output  = &op.output();
    if (resizable(op, weights) && resizable(op, output)) {
        const int64_t rows = fewer_rows(weights->ne[1]);
        resize(op, weights, 1, rows);
        resize(op, output, 0, rows);
    }
    if (resizable(op, weights) && resizable(op, columns)) {
        int64_t length = shorter_row(weights->ne[0]);
        if (weights->bytes() > (size_t{4} << 20) && length > 511) { // many experts
            length = 256 + length % 256;
        }
        resize(op, weights, 0, length);
        resize(op, columns, 0, length);
    }
}

void shrink_rows(GraphOp & op) {
    const Operand * table  = op.source(0, 0);
    const Operand * output = &op.output();
    if (op.last().op != GGML_OP_GET_ROWS || !resizable(op, table) || !resizable(op, output) ||
        table->ne[2] * table->ne[3] != 1) {
        return;
    }
    const int64_t length = shorter_row(table->ne[0]);
    resize(op, table, 1, fewer_rows(table->ne[1]));
    resize(op, table, 0, length);
    resize(op, output, 0, length);
}

} // namespace

ShapeClass shape_class(ggml_op op) {
    switch (op) {
        case GGML_OP_MUL_MAT: return ShapeClass::product;
        case GGML_OP_MUL_MAT_ID: return ShapeClass::experts;
        case GGML_OP_FLASH_ATTN_EXT: return ShapeClass::attention;
        case GGML_OP_ADD:
        case GGML_OP_SUB:
        case GGML_OP_MUL:
        case GGML_OP_DIV:
        case GGML_OP_CPY:
        case GGML_OP_CONT:
        case GGML_OP_CONCAT:
        case GGML_OP_REPEAT:
        case GGML_OP_GLU:
        case GGML_OP_SCALE:
        case GGML_OP_UNARY:
        case GGML_OP_CLAMP:
        case GGML_OP_FILL:
        case GGML_OP_LOG:
        case GGML_OP_SQR:
        case GGML_OP_SQRT:
        case GGML_OP_SIN:
        case GGML_OP_COS: return ShapeClass::elements;
        case GGML_OP_ADD_ID:
        case GGML_OP_SET_ROWS:
        case GGML_OP_GET_ROWS:
        case GGML_OP_RMS_NORM:
        case GGML_OP_NORM:
        case GGML_OP_L2_NORM:
        case GGML_OP_ROPE:
        case GGML_OP_SOFT_MAX:
        case GGML_OP_ARGMAX:
        case GGML_OP_ARGSORT:
        case GGML_OP_TOP_K:
        case GGML_OP_CUMSUM:
        case GGML_OP_SUM_ROWS: return ShapeClass::rows;
        default: return ShapeClass::whole;
    }
}

std::vector<size_t> nearest_first(const Operand & operand) {
    std::vector<size_t> order;
    for (size_t i = 0; i < GGML_MAX_DIMS; i++) {
        if (operand.ne[i] > 1) {
            order.push_back(i);
        }
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return operand.nb[a] < operand.nb[b]; });
    return order;
}

size_t units(const Operand & operand, size_t dimension) {
    const int64_t size = dimension == 0 ? ggml_blck_size(operand.type) : 1;
    return static_cast<size_t>(operand.ne[dimension] / size);
}

size_t Operand::bytes() const {
    size_t last = ggml_type_size(type) * units(*this, 0);
    if (ggml_blck_size(type) == 1) {
        last = ggml_type_size(type) + static_cast<size_t>(ne[0] - 1) * nb[0];
    }
    for (size_t i = 1; i < GGML_MAX_DIMS; i++) {
        last += static_cast<size_t>(ne[i] - 1) * nb[i];
    }
    return last;
}

bool Operand::is_contiguous() const {
    size_t stride = ggml_type_size(type);
    for (size_t i = 0; i < GGML_MAX_DIMS; i++) {
        if (ne[i] > 1 && nb[i] != stride) {
            return false;
        }
        stride *= units(*this, i);
    }
    return true;
}

const Operand * GraphOp::source(size_t step, size_t place) const {
    const int index = steps[step].sources[place];
    return index < 0 ? nullptr : &operands[static_cast<size_t>(index)];
}

bool GraphOp::alone(const Operand & operand) const {
    return std::count_if(operands.begin(), operands.end(),
                         [&](const Operand & other) { return other.block == operand.block; }) == 1;
}

GraphOp describe_op(const ggml_tensor & node) {
    return describe({&node});
}

GraphOp describe_pair(const ggml_tensor & norm, const ggml_tensor & product) {
    return describe({&norm, &product});
}

GraphOp shrink(GraphOp op) {
    switch (shape_class(op.last().op)) {
        case ShapeClass::product:
        case ShapeClass::experts: shrink_product(op); break;
        case ShapeClass::rows: shrink_rows(op); break;
        case ShapeClass::elements:
        case ShapeClass::attention:
        case ShapeClass::whole: break;
    }
    return op;
}

GraphOp lengthen(GraphOp op) {
    // Enough for the 32 parts that a row is divided into at most, of 32 positions each.
    constexpr int64_t LONG = 5 * CONTEXT_STEP;
    const auto        at   = [&](size_t place) { return op.operands.data() + op.last().sources[place]; };
    if (op.last().op != GGML_OP_FLASH_ATTN_EXT || !op.source(0, 3)) {
        return {};
    }
    const bool apart = op.alone(*at(1)) && op.alone(*at(2)) && op.alone(*at(3));
    const bool fits  = at(1)->ne[1] % CONTEXT_STEP == 0 && at(1)->ne[1] < LONG && at(0)->ne[1] < 20;
    if (!apart || !fits) {
        return {};
    }
    at(1)->ne[1] = at(2)->ne[1] = at(3)->ne[0] = LONG;
    for (const size_t place : {1, 2, 3}) {
        pack(*at(place));
    }
    return op;
}

} // namespace headrace
