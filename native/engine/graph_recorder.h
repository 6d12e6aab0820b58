// Writes down the operations of graphs while they are computed: those of one device, each kind once.
//
// Counterpart: ggml_backend_sched, which shows on_node every node before it computes it. Unlike op_watch.h it
// asks for nothing afterwards, so that graphs are computed as always.
#pragma once

#include "engine/graph_op.h"

#include <ggml.h>

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace headrace {

class GraphRecorder {
  public:
    // Whether a node is one of the device's.
    using Concerns = std::function<bool(const ggml_tensor &)>;

    explicit GraphRecorder(Concerns concerns);
    GraphRecorder(const GraphRecorder &)             = delete;
    GraphRecorder & operator=(const GraphRecorder &) = delete;

    // A ggml_backend_sched_eval_callback; user: the GraphRecorder.
    static bool on_node(ggml_tensor * node, bool ask, void * user);

    // The nodes from now on belong to another graph.
    void begin();

    // Shrunk, one of each signature, in the order of the graphs. Of those with the same signature it is the one
    // with the most data: among the passes of a model, that with the most tokens.
    const std::vector<GraphOp> & ops();

  private:
    void see(const ggml_tensor & node);
    void flush();
    void part(const ggml_tensor & node);
    void add(GraphOp op);

    // A norm and the product after it, which are one kernel unless somebody else reads the norm.
    struct Pair {
        const ggml_tensor * norm;
        const ggml_tensor * product;
    };

    Concerns                                concerns_;
    const ggml_tensor *                     norm_ = nullptr; // the node before, if it is one
    GraphOp                                 alone_;          // that norm, if it comes to stay alone
    std::vector<Pair>                       pairs_;          // of this graph
    std::vector<GraphOp>                    ops_;
    std::unordered_map<std::string, size_t> by_signature_; // indices of ops_
};

} // namespace headrace
