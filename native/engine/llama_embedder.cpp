// The llama.cpp calls behind llama_embedder.h.
#include "engine/llama_embedder.h"

#include "engine/log_capture.h"

#include <algorithm>
#include <bit>

namespace headrace {

// Enough for the CPU to multiply matrices at full speed. More would make a cancel wait longer, and memory: of
// a model that generates, llama.cpp computes the logits of every token as well, and keeps them.
constexpr size_t TOKENS_PER_PASS = 64;

constexpr size_t SEQUENCES_PER_PASS = 32;

EmbedLimits embed_limits(const Model & model, const LoadOptions & options, bool whole) {
    const auto  context   = static_cast<size_t>(options.context_size);
    const auto  batch     = static_cast<size_t>(options.batch_size);
    const bool  recurrent = llama_model_is_recurrent(model.get()) || llama_model_is_hybrid(model.get());
    EmbedLimits limits;
    limits.whole = whole;
    limits.input = whole ? std::min(context, batch) : context;
    limits.pass  = std::min(batch, TOKENS_PER_PASS);
    // Each sequence of a recurrent model has a state of its own, and not a small one.
    limits.sequences = recurrent ? 1 : std::min(SEQUENCES_PER_PASS, limits.pass);
    return limits;
}

LlamaEmbedder::LlamaEmbedder(const Model & model, const LoadOptions & options, const EmbedLimits & limits,
                             ggml_threadpool & threads)
    : model_(model), options_(options), limits_(limits), threads_(threads),
      dimensions_(static_cast<size_t>(llama_model_n_embd_out(model.get()))) {}

void LlamaEmbedder::make_room(size_t tokens) {
    if (context_ && tokens <= room_) {
        return;
    }
    context_.reset(); // first the old one: there may not be memory for both
    const size_t pass = limits_.whole ? std::max(limits_.input, limits_.pass) : limits_.pass;
    const size_t room = std::max(std::bit_ceil(tokens), pass);

    llama_context_params params = llama_context_default_params();
    params.embeddings           = true;
    params.pooling_type         = LLAMA_POOLING_TYPE_NONE;
    params.n_ctx                = static_cast<uint32_t>(room);
    params.n_batch              = static_cast<uint32_t>(pass);
    params.n_ubatch             = static_cast<uint32_t>(pass);
    params.n_seq_max            = static_cast<uint32_t>(limits_.sequences);
    params.kv_unified           = true; // inputs share the room, however it is divided
    params.n_threads            = static_cast<int32_t>(options_.threads);
    params.n_threads_batch      = static_cast<int32_t>(options_.threads);
    params.no_perf              = true;

    LogCapture log;
    context_.reset(llama_init_from_model(model_.get(), params));
    if (!context_) {
        throw Error(failure_code(log.first_error()), "a context for embedding " + std::to_string(room) +
                                                         " tokens cannot be made: " + log.first_error());
    }
    llama_attach_threadpool(context_.get(), &threads_, &threads_);
    room_ = room;
}

void LlamaEmbedder::run(const EmbedPass & pass) {
    if (pass.fresh) {
        make_room(pass.room);
        if (const llama_memory_t memory = llama_get_memory(context_.get())) {
            llama_memory_clear(memory, /*data*/ false);
        }
    }
    const size_t                count = pass.entries.size();
    std::vector<llama_token>    tokens(count);
    std::vector<llama_pos>      positions(count);
    std::vector<llama_seq_id>   sequences(count);
    std::vector<llama_seq_id *> sequence_lists(count);
    std::vector<int32_t>        sequence_counts(count, 1);
    std::vector<int8_t>         outputs(count, 1);
    for (size_t i = 0; i < count; i++) {
        tokens[i]         = pass.entries[i].token;
        positions[i]      = pass.entries[i].position;
        sequences[i]      = pass.entries[i].sequence;
        sequence_lists[i] = &sequences[i];
    }
    const llama_batch batch = {
        static_cast<int32_t>(count), tokens.data(),         nullptr,       positions.data(),
        sequence_counts.data(),      sequence_lists.data(), outputs.data()};

    LogCapture    log;
    const int32_t status = llama_model_has_encoder(model_.get()) ? llama_encode(context_.get(), batch)
                                                                 : llama_decode(context_.get(), batch);
    if (status != 0) {
        throw Error(ErrorCode::internal, "the forward pass failed with status " + std::to_string(status) +
                                             (log.first_error().empty() ? "" : ": " + log.first_error()));
    }
}

std::span<const float> LlamaEmbedder::vector(size_t entry) {
    const float * vector = llama_get_embeddings_ith(context_.get(), static_cast<int32_t>(entry));
    if (!vector) {
        throw Error(ErrorCode::internal, "the forward pass left no vectors");
    }
    return {vector, dimensions_};
}

void LlamaEmbedder::reset() {
    context_.reset();
    room_ = 0;
}

} // namespace headrace
