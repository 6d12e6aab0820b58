// A TokenEmbedder on llama.cpp: a context of its own, made when it is first needed.
//
// Its cache has room for the inputs of a pass, not for the engine's whole context; an input that needs more
// gets a larger one. What streams have in the decoder's context is not touched.
#pragma once

#include "engine/embedding.h"
#include "engine/memory_use.h"
#include "engine/model.h"
#include "engine/options.h"

#include <ggml-cpu.h>
#include <llama-cpp.h>

namespace headrace {

// What this model and these options, values in force, allow. whole: the model's context keeps no memory of
// earlier passes, or its tokens see those after them.
EmbedLimits embed_limits(const Model & model, const LoadOptions & options, bool whole);

class LlamaEmbedder : public TokenEmbedder {
  public:
    // The model outlives this, the threads do not (see compute_threads.h).
    LlamaEmbedder(const Model & model, const LoadOptions & options, const EmbedLimits & limits,
                  ggml_threadpool & threads);

    // Makes the context now. Throws Error (out_of_memory, model_invalid).
    void prepare() { make_room(1); }

    // Once there is a context.
    MemoryUse memory() const { return memory_use(context_.get()); }

    void                   run(const EmbedPass & pass) override;
    std::span<const float> vector(size_t entry) override;
    void                   reset() override;

  private:
    void make_room(size_t tokens);

    const Model &     model_;
    LoadOptions       options_;
    EmbedLimits       limits_;
    ggml_threadpool & threads_;
    llama_context_ptr context_;
    size_t            room_       = 0; // tokens that the context's cache holds
    size_t            dimensions_ = 0;
};

} // namespace headrace
