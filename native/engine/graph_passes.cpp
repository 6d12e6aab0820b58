// The llama.cpp calls behind graph_passes.h.
#include "engine/graph_passes.h"

#include "engine/log_capture.h"

#include <algorithm>

namespace headrace {

// outputs: logits that memory is reserved for; 0: those of all tokens.
static llama_context_ptr make_context(const Model & model, GraphPasses::Limits limits, int32_t outputs,
                                      ggml_backend_sched_eval_callback on_node, void * user) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx                = 64;
    params.n_batch              = static_cast<uint32_t>(limits.tokens);
    params.n_ubatch             = static_cast<uint32_t>(limits.tokens);
    params.n_seq_max            = static_cast<uint32_t>(limits.sequences);
    params.n_outputs_max        = static_cast<uint32_t>(outputs);
    params.no_perf              = true;
    params.cb_eval              = on_node;
    params.cb_eval_user_data    = user;

    // One: others would still be at work on the context's memory after an abort, when it is freed.
    params.n_threads = params.n_threads_batch = 1;

    LogCapture        log;
    llama_context_ptr context(llama_init_from_model(model.get(), params));
    if (!context) {
        throw Error(failure_code(log.first_error()),
                    "a context to look at the model's graphs cannot be made: " + log.first_error());
    }
    return context;
}

static llama_context_ptr fitting_context(const Model & model, GraphPasses::Limits limits,
                                         ggml_backend_sched_eval_callback on_node, void * user) {
    llama_context_ptr context = make_context(model, limits, limits.outputs, on_node, user);
    if (!llama_get_memory(context.get())) { // an encoder's outputs are all its tokens
        context.reset();
        context = make_context(model, limits, 0, on_node, user);
    }
    return context;
}

GraphPasses::GraphPasses(const Model & model, Limits limits, ggml_backend_sched_eval_callback on_node,
                         void * user)
    : context_(fitting_context(model, limits, on_node, user)),
      vocabulary_(std::max<Token>(1, llama_vocab_n_tokens(llama_model_get_vocab(model.get())))) {
    // A pool of ours: the one that ggml would make for each pass is lost when an assertion ends the pass.
    llama_attach_threadpool(context_.get(), thread_.get(), thread_.get());
}

std::string GraphPasses::run(Kind kind, const Batch & wanted) {
    const size_t                count = static_cast<size_t>(wanted.tokens);
    std::vector<Token>          tokens(count);
    std::vector<int8_t>         outputs(count);
    std::vector<llama_seq_id>   sequences(count);
    std::vector<llama_seq_id *> lists(count);
    std::vector<int32_t>        lengths(count, 1);
    for (size_t i = 0; i < count; i++) {
        tokens[i]    = next_++ % vocabulary_;
        sequences[i] = static_cast<llama_seq_id>(i) % wanted.sequences;
        lists[i]     = &sequences[i];
    }
    std::fill(outputs.end() - wanted.outputs, outputs.end(), int8_t{1});
    LogCapture  log;
    llama_batch batch = llama_batch_get_one(tokens.data(), wanted.tokens);
    batch.logits      = outputs.data();
    batch.seq_id      = lists.data();
    batch.n_seq_id    = lengths.data();
    if (kind == Kind::embed) {
        llama_set_embeddings(context_.get(), true);
    }
    const int32_t status =
        kind == Kind::decode ? llama_decode(context_.get(), batch) : llama_encode(context_.get(), batch);
    if (status == 0) {
        return "";
    }
    return log.first_error().empty() ? "status " + std::to_string(status) : log.first_error();
}

} // namespace headrace
