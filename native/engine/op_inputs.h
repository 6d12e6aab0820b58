// Made-up data for an operation: random, but of the kind that the operation meets in a model.
//
// Counterpart: gpu_self_test.h, which gives the same data to two backends. The same on every platform and run.
#pragma once

#include "engine/graph_op.h"

#include <cstdint>
#include <vector>

namespace headrace {

// Bytes that stand wherever nothing was written: numbers that are none, in f32, f16 and bf16 (see op_watch.cpp).
constexpr uint8_t UNWRITTEN[2] = {0xA5, 0x7F};

// Whether inputs can be made up for it: whether it is known what its indices and other special inputs mean.
bool has_inputs(const GraphOp & op);

// One for each of its blocks. Outputs and gaps hold UNWRITTEN; activations are normally distributed, weights are
// quantised from such numbers, indices are valid, masks hide a part.
std::vector<std::vector<uint8_t>> make_inputs(const GraphOp & op);

} // namespace headrace
