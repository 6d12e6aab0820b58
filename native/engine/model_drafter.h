// A Drafter that asks a small model of the same vocabulary: what it would say, greedily.
//
// Has a model and a context of its own, with one sequence per slot. Its KV cache follows the slot's tokens:
// what was guessed wrong is cut off when the next guess is wanted.
#pragma once

#include "engine/drafter.h"
#include "engine/llama_decoder.h"
#include "engine/model.h"

namespace headrace {

class ModelDrafter : public Drafter {
  public:
    // options: those of the large model, in force. Throws Error (model_invalid) when the vocabularies differ
    // or the small model's sequences cannot be trimmed.
    // threads: the engine's (see compute_threads.h).
    ModelDrafter(std::unique_ptr<Model> small, const Model & large, const LoadOptions & options,
                 ggml_threadpool & threads);

    void begin(size_t slot, std::span<const Token> prompt) override;
    void end(size_t slot) override;
    void append(size_t slot, Token token) override;
    bool draft(size_t slot, size_t at_most, std::vector<Token> & guesses) override;

    MemoryUse memory() const override { return decoder_.memory(); }

  private:
    struct Sequence {
        std::vector<Token> tokens; // of the slot
        std::vector<Token> held;   // in the small model's KV cache
    };

    Token compute(size_t slot, std::span<const Token> tokens);

    std::unique_ptr<Model> model_;
    LlamaDecoder           decoder_;
    std::vector<Sequence>  sequences_;
    size_t                 batch_size_;
    BatchPlan              plan_; // reused
};

} // namespace headrace
