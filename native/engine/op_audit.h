// The op audit of a model: what its prefill and its decode graph consist of, and proof that it is all computed.
//
// Runs two tiny passes of the model in a context of its own, under op_watch.h. Not a check of what the kernels
// compute: only that they do.
#pragma once

#include "engine/model.h"
#include "engine/op_watch.h"

#include <vector>

namespace headrace {

// A graph builder can emit an op for which a backend has no kernel; the graph then "succeeds" over old memory,
// in fluent nonsense. Here such an op is an Error (kernel_missing) that names it. Models without a decode step
// (embeddings) have a prefill only.
// Throws Error (kernel_missing, out_of_memory, model_invalid; engine_aborted under an AbortGuard).
std::vector<AuditedOp> audit_ops(const Model & model);

} // namespace headrace
