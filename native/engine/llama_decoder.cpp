// The llama.cpp calls behind llama_decoder.h.
#include "engine/llama_decoder.h"

#include "engine/log_capture.h"

namespace headrace {

static llama_context_ptr make_context(const Model & model, const LoadOptions & options) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx                = static_cast<uint32_t>(options.context_size * options.slots);
    params.n_batch              = static_cast<uint32_t>(options.batch_size);
    params.n_ubatch             = static_cast<uint32_t>(options.batch_size);
    params.n_seq_max            = static_cast<uint32_t>(options.slots);
    params.n_threads            = static_cast<int32_t>(options.threads);
    params.n_threads_batch      = static_cast<int32_t>(options.threads);
    params.no_perf              = true;

    // The default reserves room for logits of a whole batch: hundreds of megabytes for a large vocabulary.
    params.n_outputs_max = static_cast<uint32_t>(options.slots);

    LogCapture        log;
    llama_context_ptr context(llama_init_from_model(model.get(), params));
    if (!context) {
        throw Error(failure_code(log.first_error()), "a context of " + std::to_string(params.n_ctx) +
                                                         " tokens cannot be made: " + log.first_error());
    }
    return context;
}

LlamaDecoder::LlamaDecoder(const Model & model, const LoadOptions & options, ggml_threadpool & threads)
    : context_(make_context(model, options)),
      batch_(new llama_batch(llama_batch_init(static_cast<int32_t>(options.batch_size), 0, 1))),
      context_size_(static_cast<size_t>(options.context_size)),
      vocabulary_size_(static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model.get())))) {
    llama_attach_threadpool(context_.get(), &threads, &threads);
}

void LlamaDecoder::decode(const BatchPlan & plan) {
    llama_batch & batch = *batch_;
    batch.n_tokens      = static_cast<int32_t>(plan.contributions.size());
    for (size_t i = 0; i < plan.contributions.size(); i++) {
        const Contribution & contribution = plan.contributions[i];
        batch.token[i]                    = contribution.token;
        batch.pos[i]                      = contribution.position;
        batch.n_seq_id[i]                 = 1;
        batch.seq_id[i][0]                = static_cast<llama_seq_id>(contribution.slot);
        batch.logits[i]                   = contribution.wants_logits;
    }
    LogCapture    log;
    const int32_t status = llama_decode(context_.get(), batch);
    if (status != 0) {
        throw Error(ErrorCode::internal, "the forward pass failed with status " + std::to_string(status) +
                                             (log.first_error().empty() ? "" : ": " + log.first_error()));
    }
}

std::span<const float> LlamaDecoder::logits(size_t contribution) {
    const float * logits = llama_get_logits_ith(context_.get(), static_cast<int32_t>(contribution));
    if (!logits) {
        throw Error(ErrorCode::internal, "the forward pass left no logits");
    }
    return {logits, vocabulary_size_};
}

void LlamaDecoder::clear_slot(size_t slot) {
    llama_memory_seq_rm(llama_get_memory(context_.get()), static_cast<llama_seq_id>(slot), -1, -1);
}

} // namespace headrace
