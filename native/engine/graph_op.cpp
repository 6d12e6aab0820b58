// Describing, shrinking and naming behind graph_op.h.
#include "engine/graph_op.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <numeric>
#include <string_view>

namespace headrace {

namespace {

// The widest step between which WebGPU and the allocators place tensors.
constexpr size_t ALIGNMENT = 256;

// Caches grow by that many tokens; kernels count on it.
constexpr int64_t CONTEXT_STEP = 256;

// What of an operation's shape its kernel depends on.
enum class ShapeClass {
    elements,  // nothing
    rows,      // the length of a row
    product,   // weights' lengths, and whether there are few columns
    experts,   // as product, and how many experts there are
    attention, // the heads' lengths, and whether there are few queries
    whole      // all of it, as far as anybody knows
};

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

bool broadcasts(ggml_op op) {
    return op == GGML_OP_ADD || op == GGML_OP_SUB || op == GGML_OP_MUL || op == GGML_OP_DIV;
}

bool is_whole_number(ggml_type type) {
    return type == GGML_TYPE_I8 || type == GGML_TYPE_I16 || type == GGML_TYPE_I32 || type == GGML_TYPE_I64;
}

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

// The dimensions with more than one element, from the nearest to the farthest.
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

// Elements along a dimension, in units that strides count: blocks, of quantised types.
size_t units(const Operand & operand, size_t dimension) {
    const int64_t size = dimension == 0 ? ggml_blck_size(operand.type) : 1;
    return static_cast<size_t>(operand.ne[dimension] / size);
}

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

// --- naming -------------------------------------------------------------------------------------

using Parts = std::initializer_list<std::string_view>;

std::string join(Parts parts) {
    std::string text;
    for (const std::string_view part : parts) {
        text += part;
    }
    return text;
}

std::string number_text(int32_t bits) {
    const bool whole = bits > -1'000'000 && bits < 1'000'000;
    char       text[32];
    std::snprintf(text, sizeof(text), "%.6g", static_cast<double>(std::bit_cast<float>(bits)));
    return whole ? std::to_string(bits) : text;
}

std::string params_text(const OpStep & step) {
    std::string text;
    // The name has the first parameter of these.
    const size_t first = step.op == GGML_OP_GLU || step.op == GGML_OP_UNARY ? 1 : 0;
    for (size_t i = first; i < step.params.size(); i++) {
        if (step.params[i] != 0) {
            text += join({" p", std::to_string(i), "=", number_text(step.params[i])});
        }
    }
    return text;
}

// "[576,64]"; a length of 0 is any.
std::string lengths_text(const Operand & operand) {
    size_t dimensions = GGML_MAX_DIMS;
    while (dimensions > 1 && operand.ne[dimensions - 1] == 1) {
        dimensions--;
    }
    std::string text;
    for (size_t i = 0; i < dimensions; i++) {
        text += i ? "," : "[";
        text += operand.ne[i] == 0 ? "*" : std::to_string(operand.ne[i]);
    }
    return text.append("]");
}

// "3", or "5+" from 5 on.
std::string class_text(int64_t count, int64_t many) {
    return count < many ? std::to_string(count) : std::to_string(many) + "+";
}

// "[length,columns]", with what it is batched over.
std::string columns_text(const Operand & operand, const std::string & columns) {
    const std::string length = std::to_string(operand.ne[0]);
    if (operand.ne[2] * operand.ne[3] == 1) {
        return join({"[", length, ",", columns, "]"});
    }
    return join({"[", length, ",", columns, ",", std::to_string(operand.ne[2]), ",",
                 std::to_string(operand.ne[3]), "]"});
}

// Of keys or values. A context that is no cache is as long as the batch, which makes no difference.
std::string context_text(const Operand & operand) {
    Operand other = operand;
    other.ne[1]   = operand.ne[1] % CONTEXT_STEP == 0 ? operand.ne[1] : 0;
    return lengths_text(other);
}

std::string shape_text(const GraphOp & op, size_t step, const Operand & operand, bool output) {
    const auto is_source = [&](size_t place) { return &operand == op.source(step, place); };
    const bool indices   = is_whole_number(operand.type);
    // Of a pair the first step is the one that looks at whole rows.
    switch (shape_class(op.steps.front().op)) {
        case ShapeClass::elements: return "";
        case ShapeClass::rows: {
            const bool repeated = output && operand.ne[0] == op.operands.front().ne[0];
            return indices || repeated ? "" : join({"[", std::to_string(operand.ne[0]), "]"});
        }
        case ShapeClass::product:
            if (output || !is_source(1)) {
                return output ? "" : lengths_text(operand);
            }
            return columns_text(operand, class_text(operand.ne[1], 5));
        case ShapeClass::experts:
            if (output || indices || !is_source(1)) {
                return output || indices ? "" : lengths_text(operand);
            }
            return join({"[", std::to_string(operand.ne[0]), ",", std::to_string(operand.ne[1]), ",",
                         class_text(operand.ne[2], 2), "]"});
        case ShapeClass::attention:
            if (is_source(0)) {
                return columns_text(operand, operand.ne[1] < 20 ? "<20" : "20+");
            }
            return is_source(1) || is_source(2) ? context_text(operand) : "";
        case ShapeClass::whole: break;
    }
    return lengths_text(operand);
}

std::string broadcast_text(const GraphOp & op, size_t step, const Operand & operand) {
    std::string     text;
    const Operand & whole = op.operands[op.steps[step].output];
    // The kernel of a pair always takes its factors as broadcast.
    const bool told = broadcasts(op.steps[step].op) && op.steps.size() == 1;
    for (size_t i = 0; i < GGML_MAX_DIMS && told; i++) {
        if (operand.ne[i] < whole.ne[i]) {
            text += join({text.empty() ? "~" : "", std::to_string(i)});
        }
    }
    return text;
}

std::string layout_text(const GraphOp & op, size_t step, const Operand & operand) {
    std::vector<size_t> order = nearest_first(operand);
    // Indices, and a single query, lie otherwise than several; all are found by strides.
    if (is_whole_number(operand.type) ||
        (op.steps[step].op == GGML_OP_FLASH_ATTN_EXT && &operand == op.source(step, 0))) {
        order.clear();
    }
    bool   gaps = false;
    size_t end  = ggml_type_size(operand.type);
    for (const size_t dimension : order) {
        gaps = gaps || operand.nb[dimension] != end;
        end  = operand.nb[dimension] * units(operand, dimension);
    }
    std::string text;
    if (!std::is_sorted(order.begin(), order.end())) {
        text = "@";
        for (const size_t dimension : order) {
            text += std::to_string(dimension);
        }
    }
    if (gaps) {
        text += text.empty() ? "@+" : "+";
    }
    if (operand.offset % ALIGNMENT != 0) {
        text += operand.offset % 16 == 0 ? "o" : "O";
    }
    return text;
}

// Whether WebGPU would bind overlapping ranges for the two: it binds from one multiple to the next.
bool overlap(const Operand & a, const Operand & b) {
    return a.block == b.block && a.offset / ALIGNMENT * ALIGNMENT < b.offset + b.bytes() &&
           b.offset / ALIGNMENT * ALIGNMENT < a.offset + a.bytes();
}

// What a pair leaves between its two steps is never in memory.
bool passing(const GraphOp & op, size_t index) {
    return op.steps.size() > 1 && index == op.steps.front().output;
}

std::string overlap_text(const GraphOp & op, size_t index) {
    for (size_t other = 0; other < index; other++) {
        const Operand & a = op.operands[other];
        const Operand & b = op.operands[index];
        if (!passing(op, other) && overlap(a, b)) {
            return join({a.offset == b.offset ? " =" : " &", std::to_string(other)});
        }
    }
    return "";
}

std::string operand_text(const GraphOp & op, size_t step, size_t index, bool output) {
    const Operand & operand = op.operands[index];
    return join({ggml_type_name(operand.type), shape_text(op, step, operand, output),
                 broadcast_text(op, step, operand), layout_text(op, step, operand), overlap_text(op, index)});
}

} // namespace

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

std::string signature(const GraphOp & op) {
    std::string text, inputs, params;
    for (size_t step = 0; step < op.steps.size(); step++) {
        text += join({step ? "+" : "", op.steps[step].name});
        params += params_text(op.steps[step]);
        for (const int index : op.steps[step].sources) {
            if (index >= 0 && !passing(op, static_cast<size_t>(index))) {
                inputs += inputs.empty() ? " " : " × ";
                inputs += operand_text(op, step, static_cast<size_t>(index), false);
            }
        }
    }
    return join({text, params, inputs, " → ", operand_text(op, op.steps.size() - 1, op.last().output, true)});
}

} // namespace headrace
