// Watches a graph being computed, node by node: which ops it has, who computes them, and whether anybody does.
//
// Counterpart: ggml_backend_sched, which calls on_node before and after each node. Knows nothing of models;
// op_audit.cpp runs a model's graphs under it. It is no profiler: nodes that run one by one are slower.
#pragma once

#include "engine/error.h"

#include <ggml-backend.h>
#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace headrace {

// One kind of operation in a graph, and what computes it.
struct AuditedOp {
    std::string phase;   // as told to OpWatch::begin: "prefill", "decode"
    std::string op;      // ggml's name: "MUL_MAT"
    std::string inputs;  // types: "q4_1 × f32"
    std::string output;  // type: "f32"
    std::string backend; // device that the output lies on: "CPU"
    std::string kernel;  // what selects the kernel, as far as ggml tells: see kernel_of()
    size_t      count = 0;
};

// Whether the node is work at all: not a view, not empty, not left out of the graph.
bool computes(const ggml_tensor & node);

// Where the output of a node lies whose graph is allocated: what computes it. Null: nobody knows.
ggml_backend_dev_t device_of(const ggml_tensor & node);

// Whether that is a GPU.
bool is_on_gpu(const ggml_tensor & node);

// Of a matrix product: the buffer type that repacked its weights ("CPU_REPACK"), else its inner loop
// ("vec_dot q4_1 × q8_1"). Of all others ggml tells no more than the operation ("SWIGLU", "ROPE").
std::string kernel_of(const ggml_tensor & node);

class OpWatch {
  public:
    using Supports = std::function<bool(const ggml_tensor &)>;

    // Asks the device that holds the node's output; an op that ggml does not know is not supported.
    static bool device_supports(const ggml_tensor & node);

    explicit OpWatch(Supports supports = device_supports);
    OpWatch(const OpWatch &)             = delete;
    OpWatch & operator=(const OpWatch &) = delete;

    enum class Stepping {
        single, // every node is computed alone and seen
        fused   // one that the CPU may compute in one kernel with the next is left to it, and not seen itself
    };

    // The nodes from now on belong to this phase.
    void begin(const std::string & phase, Stepping stepping = Stepping::single);

    // A ggml_backend_sched_eval_callback; user: the OpWatch.
    static bool on_node(ggml_tensor * node, bool ask, void * user);

    // Every kind of op so far, in the order of the graph.
    const std::vector<AuditedOp> & ops() const { return ops_; }

    // Nodes whose output was seen to be written. Not seen: ops that change an input in place, outputs in
    // quantised types, and outputs outside the host's memory.
    size_t proven() const { return proven_; }

    // Throws Error (kernel_missing) if some op has nothing to compute it: its device does not support it, or
    // part of its output was left as it was.
    void check() const;

  private:
    bool before(ggml_tensor & node);
    bool after(ggml_tensor & node);
    void list(const ggml_tensor & node);
    void divert_output(ggml_tensor & node);
    void report(const ggml_tensor & node, const std::string & reason);

    Supports               supports_;
    std::string            phase_;
    Stepping               stepping_ = Stepping::single;
    std::vector<AuditedOp> ops_;
    size_t                 proven_ = 0;
    std::optional<Error>   missing_; // the first op that nothing computes

    // While a proven node computes, its output lies here, filled with a pattern no kernel leaves.
    std::vector<uint64_t> stand_in_;
    ggml_tensor *         diverted_ = nullptr;
    void *                home_     = nullptr; // where the diverted node's output belongs
};

} // namespace headrace
