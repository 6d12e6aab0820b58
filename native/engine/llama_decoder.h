// A Decoder on llama.cpp: one context, one sequence per slot.
#pragma once

#include "engine/decoder.h"
#include "engine/memory_use.h"
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

    MemoryUse memory() const { return memory_use(context_.get()); }

    void                   decode(const BatchPlan & plan) override;
    std::span<const float> logits(size_t contribution) override;
    size_t                 context_size() const override { return context_size_; }
    void                   use_adapters(std::span<const AdapterUse> adapters) override;

    bool          can_trim() const override { return can_trim_; }
    bool          can_trim_to(size_t slot, size_t length) const override;
    bool          can_trim_saved() const override { return can_trim_ && window_ == 0; }
    bool          can_shift() const override { return can_shift_; }
    void          trim(size_t slot, size_t length) override;
    void          shift(size_t slot, size_t keep, size_t count) override;
    size_t        state_bytes(size_t slot) const override;
    SequenceState save(size_t slot) const override;
    bool          restore(size_t slot, std::span<const uint8_t> state) override;

  private:
    llama_context_ptr                               context_;
    std::unique_ptr<llama_batch, LlamaBatchDeleter> batch_;
    size_t                                          context_size_;
    size_t                                          vocabulary_size_;
    const Model &                                   model_;
    size_t                                          window_; // of sliding-window layers; 0: none
    bool                                            can_trim_;
    bool                                            can_shift_;
};

} // namespace headrace
