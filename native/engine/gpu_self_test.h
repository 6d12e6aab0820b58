// Whether a GPU computes a model's operations as the CPU does, found out before the first token.
//
// Counterparts: graph_recorder.h says which operations a model needs, op_trial.h computes them. The worst faults
// of GPUs leave no error, only nonsense; here they are an Error (gpu_mismatch) with the figures. Small cases of
// every kind, not a proof of every size: what goes wrong only in a large tensor is not seen.
#pragma once

#include "engine/graph_op.h"

#include <ggml-backend.h>

#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace headrace {

// How one operation compares. error and limit are of the measure; see compare_outputs().
struct OpVerdict {
    std::string signature;
    bool        ok = true;
    std::string measure; // "nmse", "peak", "gain", "values", "numbers", "unwritten"
    double      error   = 0;
    double      limit   = 0;
    double      nmse    = 0;
    int64_t     numbers = 0; // values of the reference that are numbers
    // One that differs: the first, or the one that differs most.
    std::string where; // "[i0,i1,i2,i3]"
    double      got      = 0;
    double      expected = 0;

    // For people: all of it.
    std::string text() const;
};

struct SelfTestReport {
    size_t      tested = 0;
    size_t      known  = 0; // of the operations, those that were not tested because they are known
    double      ms     = 0;
    std::string worst_op;               // the signature that came nearest to its limit; empty: none tested
    double      worst_error = 0;        // its normalised mean square error
    std::vector<std::string> proven;    // signatures of all that agree, tested now or known
    std::vector<std::string> unchecked; // of those that no inputs can be made up for, or not in a small shape
};

// How far two outputs are apart: those of a device, and of a reference. Both are the block that the output lies in.
//   unwritten  values that hold what lay there before
//   numbers    values that are no number where the reference has one
//   values     whole numbers that differ
//   nmse       mean square of the difference, by that of the reference
//   peak       largest difference, by the root mean square of the reference
//   gain       factor between the two, less 1
// The limits are in gpu_self_test.cpp, with their reasons.
OpVerdict compare_outputs(const GraphOp & op, std::span<const uint8_t> device,
                          std::span<const uint8_t> reference);

// Computes the operation on both; nothing if the device does not support it, or it has no inputs.
// Throws Error (gpu_failed, out_of_memory).
std::optional<OpVerdict> try_op(const GraphOp & op, ggml_backend_t device, ggml_backend_t reference);

// Tries all operations but those whose signature is known. Everything happens on this thread.
// Throws Error (gpu_mismatch) about the first that differs; gpu_failed, out_of_memory.
SelfTestReport run_self_test(std::span<const GraphOp> ops, ggml_backend_t device, ggml_backend_t reference,
                             const std::set<std::string> & known);

} // namespace headrace
