// The llama.cpp calls behind llama_decoder.h.
#include "engine/llama_decoder.h"

#include "engine/log_capture.h"

#include <algorithm>

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

    params.kv_unified = options.unified_cache;
    params.swa_full   = !options.sliding_cache;

    // The default reserves room for logits of a whole batch: hundreds of megabytes for a large vocabulary.
    const bool guesses   = options.speculation != "none";
    params.n_outputs_max = static_cast<uint32_t>(options.slots * (guesses ? 1 + options.draft_tokens : 1));

    LogCapture        log;
    llama_context_ptr context(llama_init_from_model(model.get(), params));
    if (!context) {
        throw Error(failure_code(log.first_error()), "a context of " + std::to_string(params.n_ctx) +
                                                         " tokens cannot be made: " + log.first_error());
    }
    return context;
}

// The state of a recurrent layer cannot go back; a window without the rest has forgotten what was before it.
static bool trims(const Model & model, const LoadOptions & options) {
    const bool windows    = llama_model_n_swa(model.get()) > 0 && options.sliding_cache;
    const bool compressed = model.info().architecture == "deepseek4"; // its seq_rm() takes all or nothing
    return !llama_model_is_recurrent(model.get()) && !llama_model_is_hybrid(model.get()) && !windows &&
           !compressed;
}

LlamaDecoder::LlamaDecoder(const Model & model, const LoadOptions & options, ggml_threadpool & threads)
    : context_(make_context(model, options)),
      batch_(new llama_batch(llama_batch_init(static_cast<int32_t>(options.batch_size), 0, 1))),
      context_size_(static_cast<size_t>(options.context_size)),
      vocabulary_size_(static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model.get())))),
      model_(model), window_(static_cast<size_t>(std::max(llama_model_n_swa(model.get()), 0))),
      can_trim_(trims(model, options)),
      can_shift_(can_trim_ && has_memory() && llama_memory_can_shift(llama_get_memory(context_.get()))) {
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

void LlamaDecoder::use_adapters(std::span<const AdapterUse> adapters) {
    std::vector<llama_adapter_lora *> pointers;
    std::vector<float>                scales;
    for (const AdapterUse & use : adapters) {
        pointers.push_back(model_.adapter(use.index));
        scales.push_back(use.scale);
    }
    llama_set_adapters_lora(context_.get(), pointers.data(), pointers.size(), scales.data());
}

static llama_seq_id sequence_id(size_t slot) {
    return static_cast<llama_seq_id>(slot);
}

// Even a cache that keeps all tokens of sliding-window layers may take the places of those that no window
// reaches any more. What is left of a sequence there is always without gaps.
bool LlamaDecoder::can_trim_to(size_t slot, size_t length) const {
    if (!can_trim_ || window_ == 0 || length == 0) {
        return can_trim_ || length == 0;
    }
    const llama_pos first = llama_memory_seq_pos_min(llama_get_memory(context_.get()), sequence_id(slot));
    return first == 0 || (first > 0 && static_cast<size_t>(first) + window_ <= length + 1);
}

void LlamaDecoder::trim(size_t slot, size_t length) {
    const auto from = static_cast<llama_pos>(length);
    if (!llama_memory_seq_rm(llama_get_memory(context_.get()), sequence_id(slot), from, -1)) {
        throw Error(ErrorCode::internal, "the KV cache could not be cut at " + std::to_string(length));
    }
}

void LlamaDecoder::shift(size_t slot, size_t keep, size_t count) {
    llama_memory_t memory = llama_get_memory(context_.get());
    const auto     begin  = static_cast<llama_pos>(keep);
    const auto     end    = static_cast<llama_pos>(keep + count);
    llama_memory_seq_rm(memory, sequence_id(slot), begin, end);
    llama_memory_seq_add(memory, sequence_id(slot), end, -1, begin - end);
}

size_t LlamaDecoder::state_bytes(size_t slot) const {
    return llama_state_seq_get_size(context_.get(), sequence_id(slot));
}

SequenceState LlamaDecoder::save(size_t slot) const {
    SequenceState state(state_bytes(slot));
    state.resize(llama_state_seq_get_data(context_.get(), state.data(), state.size(), sequence_id(slot)));
    return state;
}

bool LlamaDecoder::restore(size_t slot, std::span<const uint8_t> state) {
    LogCapture log;
    if (llama_state_seq_set_data(context_.get(), state.data(), state.size(), sequence_id(slot)) > 0) {
        return true;
    }
    trim(slot, 0);
    return false;
}

} // namespace headrace
