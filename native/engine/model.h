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

// What is said of models that can neither be queried nor embed: translators, diffusion, drafts, sound.
constexpr const char * NOT_USABLE = "this model neither generates text token by token nor embeds it (a "
                                    "translation, diffusion or draft model?)";

// Where a model's weights lie.
struct Placement {
    ggml_backend_dev_t device = nullptr; // null: the CPU
    int64_t            layers = -1; // of the model that the device computes, the output's counted; -1: all
};

// Told how far loading has come, 0 to 1; returning false ends it.
using LoadProgress = std::function<bool(double)>;

class Model : public Vocabulary {
  public:
    // Blocks until the weights are in memory. paths: see check_model_files. memory_map: whether the host can
    // map files. Throws Error (model_*, invalid_request, out_of_memory, cancelled).
    Model(const std::vector<std::string> & paths, bool memory_map, const LoadProgress & progress,
          const Placement & placement = {});

    size_t      size() const override;
    std::string piece(Token token) const override;
    std::string special_piece(Token token) const override;
    bool        is_end(Token token) const override;

    const llama_vocab * llama() const override { return vocabulary_; }

    // add_special: with the tokens that the model wants around a text, its beginning-of-text token for one.
    // parse_special: special tokens that are written out in the text count as such.
    std::vector<Token> tokenize(const std::string & text, bool add_special = true,
                                bool parse_special = true) const;

    // The text of tokens that the vocabulary has, special ones included; raw bytes, not always UTF-8.
    std::string detokenize(const std::vector<Token> & tokens) const;

    // How many of the tokens that tokenize() adds stand at the end of a text: 1 for an encoder's [SEP].
    size_t closing_tokens() const;

    // Whether a token only sees those before it. Without that a model cannot generate.
    bool is_causal() const { return causal_; }

    // How the file says that token vectors become one; UNSPECIFIED if it does not say, or says "not at all".
    enum llama_pooling_type pooling() const;

    // All tokens whose text in the vocabulary is exactly this.
    std::vector<Token> find_tokens(const std::string & text) const;

    // Loads a LoRA adapter made for this model and returns its index. Throws Error (model_*).
    size_t add_adapter(const std::string & path);

    llama_adapter_lora * adapter(size_t index) const { return adapters_.at(index).get(); }

    ModelInfo info() const;

    // All files it was loaded from, in the order of loading.
    const std::vector<std::string> & files() const { return files_; }

    llama_model * get() const { return model_.get(); }

    const Placement & placement() const { return placement_; }

  private:
    // The value under a key of the model's architecture, as text; empty if the file has none.
    std::string own_metadata(const std::string & name) const;

    std::vector<std::string>            files_;
    Placement                           placement_;
    llama_model_ptr                     model_;
    const llama_vocab *                 vocabulary_ = nullptr;
    std::vector<llama_adapter_lora_ptr> adapters_;
    bool                                causal_ = true;
};

} // namespace headrace
