// What kernels can tell of an operation's shape: shared by graph_op.cpp, op_signature.cpp and op_trial.cpp.
//
// Read off ggml-webgpu.cpp and ggml-webgpu-shader-lib.hpp: by what a pipeline is chosen, and how work is divided.
#pragma once

#include "engine/graph_op.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headrace {

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

ShapeClass shape_class(ggml_op op);

// The dimensions with more than one element, from the nearest to the farthest.
std::vector<size_t> nearest_first(const Operand & operand);

// Elements along a dimension, in units that strides count: blocks, of quantised types.
size_t units(const Operand & operand, size_t dimension);

} // namespace headrace
