// The llama.cpp calls behind graph_passes.h.
#include "engine/graph_passes.h"

#include "engine/log_capture.h"

#include <algorithm>

namespace headrace {

static llama_context_ptr make_context(const llama_model * model, int32_t longest,
                                      ggml_backend_sched_eval_callback on_node, void * user) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx                = 64;
    params.n_batch              = static_cast<uint32_t>(longest);
    params.n_ubatch             = static_cast<uint32_t>(longest);
    params.n_seq_max            = 1;
    params.no_perf              = true;
    params.cb_eval              = on_node;
    params.cb_eval_user_data    = user;

    // One: others would still be at work on the context's memory after an abort, when it is freed.
    params.n_threads = params.n_threads_batch = 1;

    LogCapture        log;
    llama_context_ptr context(llama_init_from_model(const_cast<llama_model *>(model), params));
    if (!context) {
        throw Error(failure_code(log.first_error()),
                    "a context to look at the model's graphs cannot be made: " + log.first_error());
    }
    return context;
}

GraphPasses::GraphPasses(const Model & model, int32_t longest, ggml_backend_sched_eval_callback on_node,
                         void * user)
    : context_(make_context(model.get(), longest, on_node, user)),
      vocabulary_(std::max<Token>(1, llama_vocab_n_tokens(llama_model_get_vocab(model.get())))) {
    // A pool of ours: the one that ggml would make for each pass is lost when an assertion ends the pass.
    llama_attach_threadpool(context_.get(), thread_.get(), thread_.get());
}

std::string GraphPasses::run(Kind kind, int32_t count, int32_t outputs) {
    std::vector<Token> tokens(static_cast<size_t>(count));
    for (Token & token : tokens) {
        token = next_++ % vocabulary_;
    }
    std::vector<int8_t> wanted(tokens.size());
    std::fill(wanted.end() - outputs, wanted.end(), int8_t{1});
    LogCapture  log;
    llama_batch batch = llama_batch_get_one(tokens.data(), count);
    batch.logits      = wanted.data();
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
