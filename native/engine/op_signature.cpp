// The naming behind graph_op.h.
#include "engine/graph_op.h"

#include "engine/shape_class.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <initializer_list>
#include <string_view>

namespace headrace {

namespace {

bool broadcasts(ggml_op op) {
    return op == GGML_OP_ADD || op == GGML_OP_SUB || op == GGML_OP_MUL || op == GGML_OP_DIV;
}

bool is_whole_number(ggml_type type) {
    return type == GGML_TYPE_I8 || type == GGML_TYPE_I16 || type == GGML_TYPE_I32 || type == GGML_TYPE_I64;
}

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
