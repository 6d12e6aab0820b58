// Tiny passes of a model in a context of its own, for whoever wants to see its graphs.
//
// Counterparts: op_audit.h, model_ops.h. What is computed is of no use to anybody.
#pragma once

#include "engine/compute_threads.h"
#include "engine/model.h"

#include <string>

namespace headrace {

class GraphPasses {
  public:
    // At most: tokens per pass, and logits of them, for which memory is reserved.
    struct Limits {
        int32_t tokens;
        int32_t outputs;
        int32_t sequences = 1; // each with a cache of its own
    };

    // on_node: shown every node, on this thread. Throws Error (out_of_memory, model_invalid).
    GraphPasses(const Model & model, Limits limits, ggml_backend_sched_eval_callback on_node, void * user);

    enum class Kind {
        encode, // without a context that later tokens see
        embed,  // likewise, of a model that gives vectors, with its pooling
        decode
    };

    struct Batch {
        int32_t tokens;        // different ones, so that experts differ
        int32_t outputs   = 1; // logits wanted, of the last tokens
        int32_t sequences = 1; // that the tokens are dealt out to
    };

    // Returns what went wrong; empty: nothing.
    std::string run(Kind kind, const Batch & batch);

    // Whether the model has a context that later tokens see.
    bool remembers() const { return llama_get_memory(context_.get()) != nullptr; }

  private:
    llama_context_ptr context_;
    Token             vocabulary_;
    Token             next_   = 0;
    ComputeThreads    thread_ = start_compute_threads(1); // last, to end first
};

} // namespace headrace
