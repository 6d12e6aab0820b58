// The two passes behind op_audit.h.
#include "engine/op_audit.h"

#include "engine/compute_threads.h"
#include "engine/log_capture.h"

#include <algorithm>

namespace headrace {

namespace {

// Repacked kernels take four rows at once; a fifth makes their remainder run too.
constexpr int32_t PREFILL_TOKENS = 5;

llama_context_ptr make_context(const llama_model * model, OpWatch & watch) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx                = 64;
    params.n_batch              = PREFILL_TOKENS;
    params.n_ubatch             = PREFILL_TOKENS;
    params.n_seq_max            = 1;
    params.no_perf              = true;
    params.cb_eval              = OpWatch::on_node;
    params.cb_eval_user_data    = &watch;

    // One: others would still be at work on the context's memory after an abort, when it is freed.
    params.n_threads = params.n_threads_batch = 1;

    LogCapture        log;
    llama_context_ptr context(llama_init_from_model(const_cast<llama_model *>(model), params));
    if (!context) {
        throw Error(failure_code(log.first_error()),
                    "a context for the op audit cannot be made: " + log.first_error());
    }
    return context;
}

class Passes {
  public:
    Passes(const Model & model, OpWatch & watch)
        : context_(make_context(model.get(), watch)), watch_(watch),
          vocabulary_(std::max<Token>(1, llama_vocab_n_tokens(llama_model_get_vocab(model.get())))) {
        // A pool of ours: the one that ggml would make for each pass is lost when an assertion ends the pass.
        llama_attach_threadpool(context_.get(), thread_.get(), thread_.get());
    }

    // Different tokens, so that experts differ.
    void run(const char * phase, int32_t count, int32_t (*compute)(llama_context *, llama_batch),
             OpWatch::Stepping stepping = OpWatch::Stepping::single) {
        std::vector<Token> tokens(static_cast<size_t>(count));
        for (Token & token : tokens) {
            token = next_++ % vocabulary_;
        }
        LogCapture log;
        watch_.begin(phase, stepping);
        const int32_t status = compute(context_.get(), llama_batch_get_one(tokens.data(), count));
        watch_.check();
        if (status != 0) {
            throw Error(ErrorCode::internal,
                        std::string("the ") + phase + " of the op audit failed: " + log.first_error());
        }
    }

    // Of a model that gives vectors, with its pooling.
    void embed() {
        llama_set_embeddings(context_.get(), true);
        run("prefill", PREFILL_TOKENS, llama_encode);
    }

    // Whether the model has a context that later tokens see.
    bool remembers() const { return llama_get_memory(context_.get()) != nullptr; }

  private:
    llama_context_ptr context_;
    OpWatch &         watch_;
    Token             vocabulary_;
    Token             next_   = 0;
    ComputeThreads    thread_ = start_compute_threads(1); // last, to end first
};

} // namespace

std::vector<AuditedOp> audit_ops(const Model & model) {
    OpWatch watch;
    Passes  passes(model, watch);
    if (!passes.remembers()) {
        passes.embed();
        return watch.ops();
    }
    if (llama_model_has_encoder(model.get())) {
        passes.run("prefill", PREFILL_TOKENS, llama_encode);
    }
    passes.run("prefill", PREFILL_TOKENS, llama_decode);
    // What was seen alone in the first pass runs as it will later in the second.
    passes.run("decode", 1, llama_decode, OpWatch::Stepping::fused);
    return watch.ops();
}

} // namespace headrace
