// A graph that ggml's scheduler computes on the CPU, in memory that its allocator reuses as it does for a model: the
// first outputs take the places of the inputs.
//
// For tests of what watches a graph: graph_recorder_test.cpp, op_watch_test.cpp. Knows neither.
#pragma once

#include <doctest/doctest.h>
#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml-cpu.h>

#include <vector>

namespace headrace {

class CpuGraph {
  public:
    CpuGraph() : context_(ggml_init({1 << 20, nullptr, true})), cpu_(ggml_backend_cpu_init()) {
        ggml_backend_t backend = cpu_.get();
        sched_.reset(ggml_backend_sched_new(&backend, nullptr, 1, 64, false, false));
        graph_ = ggml_new_graph(context_.get());
    }

    ggml_context * context() { return context_.get(); }

  protected:
    ggml_tensor * add_input(ggml_type type, int64_t ne0, int64_t ne1 = 1, int64_t ne2 = 1) {
        ggml_tensor * tensor = ggml_new_tensor_3d(context_.get(), type, ne0, ne1, ne2);
        ggml_set_input(tensor);
        inputs_.push_back(tensor);
        return tensor;
    }

    // Makes room for the graph of `outputs`; its nodes will be shown to `on_node`. Then inputs can be filled.
    void allocate(const std::vector<ggml_tensor *> & outputs, ggml_backend_sched_eval_callback on_node,
                  void * user) {
        for (ggml_tensor * output : outputs) {
            ggml_set_output(output);
            ggml_build_forward_expand(graph_, output);
        }
        ggml_backend_sched_set_eval_callback(sched_.get(), on_node, user);
        REQUIRE(ggml_backend_sched_alloc_graph(sched_.get(), graph_));
    }

    void compute_graph() {
        REQUIRE(ggml_backend_sched_graph_compute(sched_.get(), graph_) == GGML_STATUS_SUCCESS);
    }

    const std::vector<ggml_tensor *> & inputs() const { return inputs_; }

  private:
    ggml_context_ptr           context_;
    ggml_backend_ptr           cpu_;
    ggml_backend_sched_ptr     sched_;
    ggml_cgraph *              graph_ = nullptr;
    std::vector<ggml_tensor *> inputs_;
};

} // namespace headrace
