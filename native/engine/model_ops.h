// The operations that a model's graphs need from a device, and their self-test.
//
// Counterparts: graph_recorder.h, gpu_self_test.h. Unlike op_audit.h it looks at one device's share only.
#pragma once

#include "engine/gpu_self_test.h"
#include "engine/graph_recorder.h"
#include "engine/model.h"

#include <set>
#include <string>
#include <vector>

namespace headrace {

// Of passes of several lengths, as kernels depend on it: of one token, of few and of many. Shrunk, one of each
// signature. concerns: whether a node is the device's. slots: whether several sequences, each with a cache of its
// own, are computed at once. Throws Error (out_of_memory, model_invalid).
std::vector<GraphOp> model_ops(const Model & model, const GraphRecorder::Concerns & concerns,
                               bool slots = false);

// Compares what the model needs from its GPU with what the CPU computes; an empty report if it needs nothing.
// known: signatures that are proven already.
// Throws Error (gpu_mismatch, gpu_failed, out_of_memory; engine_aborted under an AbortGuard).
SelfTestReport test_model_on_gpu(const Model & model, const std::set<std::string> & known,
                                 bool slots = false);

} // namespace headrace
