// An operation of a model's graph, written down so that it can be computed again, small, away from the model.
//
// Counterparts: graph_recorder.h writes them down, op_inputs.h makes up data for them, gpu_self_test.h computes
// them. Keeps whatever chooses a kernel and how it walks its data: types, parameters, lengths of rows, strides,
// what lies over what. Not the data, and of most counts only the class.
#pragma once

#include <ggml.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace headrace {

// A tensor that an operation reads or writes.
struct Operand {
    ggml_type                          type = GGML_TYPE_F32;
    std::array<int64_t, GGML_MAX_DIMS> ne{1, 1, 1, 1};
    std::array<size_t, GGML_MAX_DIMS>  nb{};       // strides, in bytes
    size_t                             block  = 0; // of memory that it lies in; see GraphOp::blocks
    size_t                             offset = 0; // in its block, in bytes

    int64_t elements() const { return ne[0] * ne[1] * ne[2] * ne[3]; }

    // From its first byte to its last.
    size_t bytes() const;

    bool is_contiguous() const;
};

// One node.
struct OpStep {
    ggml_op                       op = GGML_OP_NONE;
    std::string                   name; // "MUL_MAT", "SWIGLU"
    std::array<int32_t, 16>       params{};
    std::array<int, GGML_MAX_SRC> sources; // indices of operands; -1: none
    size_t                        output = 0;
};

// A node, or two that a backend computes in one kernel.
struct GraphOp {
    std::vector<OpStep>  steps;
    std::vector<Operand> operands;
    size_t blocks = 0; // of memory. Operands share one if they are views of the same tensor, or if
                       // the allocator put the output where an input was

    const OpStep &  last() const { return steps.back(); }
    const Operand & output() const { return operands[last().output]; }

    // Of a step; null if it has none at that place.
    const Operand * source(size_t step, size_t place) const;

    // Whether no other operand lies in its block.
    bool alone(const Operand & operand) const;
};

// Of a node whose tensors are allocated.
GraphOp describe_op(const ggml_tensor & node);

// Of a norm and the product that scales it.
GraphOp describe_pair(const ggml_tensor & norm, const ggml_tensor & product);

// The same operation with fewer rows of weights, and shorter ones: enough for every turn that a kernel can take.
GraphOp shrink(GraphOp op);

// The same attention over a longer context, where the work on one row is divided and put together again; without
// a step if it is no attention, or long already.
GraphOp lengthen(GraphOp op);

// What the operation's kernel depends on, the same for every model and run:
// "MUL_MAT q4_1[576,64] × f32[576,5+] → f32", "ADD f32 × f32~1 → f32 =0".
//   [576,64]   lengths; of operations on rows only the rows' length, as how many there are makes no difference
//              to a kernel; of operations on elements none
//   5+, 2+     so many columns or more, which are all the same to the kernel; 20+ likewise, of queries
//   ~12        broadcast over the dimensions 1 and 2
//   @021+      strides: the dimensions from the nearest to the farthest; +: with gaps
//   o, O       begins at no multiple of 256 bytes, or not even of 16
//   &0, =0     lies partly over operand 0, or at its very place
//   p4=8192    the operation's parameter 4; those that are 0 are left out
std::string signature(const GraphOp & op);

} // namespace headrace
