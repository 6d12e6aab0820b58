// A Decoder on llama.cpp: one context, one sequence per slot.
#pragma once

#include "engine/decoder.h"
#include "engine/model.h"
#include "engine/options.h"

#include <ggml-cpu.h>
#include <llama-cpp.h>

#include <memory>

namespace headrace {

struct LlamaBatchDeleter {
    void operator()(llama_batch * batch) const {
        llama_batch_free(*batch);
        delete batch;
    }
};

class LlamaDecoder : public Decoder {
  public:
    // options: with the values in force (no zeros left). The model outlives the decoder, the threads do not
    // (see compute_threads.h). Throws Error (out_of_memory, model_invalid) when the context cannot be made.
    LlamaDecoder(const Model & model, const LoadOptions & options, ggml_threadpool & threads);
    LlamaDecoder(const LlamaDecoder &)             = delete;
    LlamaDecoder & operator=(const LlamaDecoder &) = delete;

    // Whether the context keeps what it has computed. An encoder's does not: it cannot generate.
    bool has_memory() const { return llama_get_memory(context_.get()) != nullptr; }

    void                   decode(const BatchPlan & plan) override;
    std::span<const float> logits(size_t contribution) override;
    void                   clear_slot(size_t slot) override;
    size_t                 context_size() const override { return context_size_; }

  private:
    llama_context_ptr                               context_;
    std::unique_ptr<llama_batch, LlamaBatchDeleter> batch_;
    size_t                                          context_size_;
    size_t                                          vocabulary_size_;
};

} // namespace headrace
