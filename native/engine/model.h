// A loaded model: weights and vocabulary. Knows how to turn text into tokens and back.
//
// Contexts are made from it by llama_decoder.cpp; chat templates are read from it by chat/chat_template.cpp.
#pragma once

#include "engine/decoder.h"
#include "engine/event.h"

#include <llama-cpp.h>

#include <functional>
#include <string>
#include <vector>

namespace headrace {

// What is said of models that do not generate a text token by token: encoders, translators, diffusion.
constexpr const char * NOT_GENERATIVE =
    "this model does not generate text token by token (an embedding, encoder or diffusion model?)";

// Told how far loading has come, 0 to 1; returning false ends it.
using LoadProgress = std::function<bool(double)>;

class Model : public Vocabulary {
  public:
    // Blocks until the weights are in memory. memory_map: whether the host can map files.
    // Throws Error (model_*, out_of_memory, cancelled).
    Model(const std::string & path, bool memory_map, const LoadProgress & progress);

    size_t      size() const override;
    std::string piece(Token token) const override;
    std::string special_piece(Token token) const override;
    bool        is_end(Token token) const override;

    // With the model's own beginning-of-text token where it wants one; special tokens in the text count as such.
    std::vector<Token> tokenize(const std::string & text) const;

    // All tokens whose text in the vocabulary is exactly this.
    std::vector<Token> find_tokens(const std::string & text) const;

    // Loads a LoRA adapter made for this model and returns its index. Throws Error (model_*).
    size_t add_adapter(const std::string & path);

    llama_adapter_lora * adapter(size_t index) const { return adapters_.at(index).get(); }

    ModelInfo info() const;

    llama_model * get() const { return model_.get(); }

  private:
    llama_model_ptr                     model_;
    const llama_vocab *                 vocabulary_ = nullptr;
    std::vector<llama_adapter_lora_ptr> adapters_;
};

} // namespace headrace
