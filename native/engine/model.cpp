// Loading and tokenising behind model.h.
#include "engine/model.h"

#include "engine/log_capture.h"
#include "engine/model_file.h"
#include "engine/regex_stack.h"
#include "engine/token_text.h"

#include <ggml-cpp.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <mutex>

namespace headrace {

// Whether the device can look up tokens in this model's table. llama.cpp leaves the table to the CPU, which in a page
// means that its bytes stay in memory that could be free.
static bool takes_embeddings(const CheckedModel & file, ggml_backend_dev_t device) {
    const ggml_init_params    params = {4 * ggml_tensor_overhead(), nullptr, /*no_alloc*/ true};
    const ggml_context_ptr    context(ggml_init(params));
    const ggml_tensor * const tokens = ggml_new_tensor_1d(context.get(), GGML_TYPE_I32, 8);
    ggml_tensor * const       table =
        ggml_new_tensor_2d(context.get(), file.embedding_type, file.embedding_width, file.embedding_rows);
    return file.embedding_rows > 0 &&
           ggml_backend_dev_supports_op(
               device, ggml_get_rows(context.get(), table, const_cast<ggml_tensor *>(tokens)));
}

static llama_model_ptr load(const CheckedModel & file, bool memory_map, const Placement & placement,
                            const LoadProgress & progress) {
    struct Watch {
        const LoadProgress & progress;
        bool                 cancelled = false;
    } watch{progress};

    llama_model_params params = llama_model_default_params();
    // A list of devices, ended by null: never those that llama.cpp would find by itself.
    ggml_backend_dev_t devices[] = {placement.device, nullptr};
    params.devices               = devices;
    params.n_gpu_layers          = placement.device ? static_cast<int32_t>(placement.layers) : 0;

    llama_model_tensor_buft_override input_layer[] = {{nullptr, nullptr}, {nullptr, nullptr}};
    if (placement.device && placement.layers < 0 && takes_embeddings(file, placement.device)) {
        input_layer[0]               = {"^(token_embd|token_embd_norm|position_embd|token_types)\\.",
                                        ggml_backend_dev_buffer_type(placement.device)};
        params.tensor_buft_overrides = input_layer;
    }
    params.load_mode         = memory_map ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
    params.lazy_mode         = LLAMA_LAZY_MODE_OFF; // its size threshold overflows to 0 in 32 bits
    params.progress_callback = [](float fraction, void * user) {
        auto & state    = *static_cast<Watch *>(user);
        state.cancelled = state.progress && !state.progress(fraction);
        return !state.cancelled;
    };
    params.progress_callback_user_data = &watch;

    std::vector<const char *> names;
    for (const std::string & path : file.paths) {
        names.push_back(path.c_str());
    }
    LogCapture      log;
    llama_model_ptr model(llama_model_load_from_splits(names.data(), names.size(), params));
    if (watch.cancelled) {
        throw Error(ErrorCode::cancelled, "loading was cancelled");
    }
    if (!model) {
        const std::string told  = log.error_after("error loading model: ");
        const std::string cause = told.empty() ? log.first_error() : told;
        const ErrorCode   code  = failure_code(told);
        throw Error(code, code == ErrorCode::out_of_memory ? "the model does not fit into memory"
                                                           : "the model cannot be loaded: " + cause);
    }
    return model;
}

static std::string metadata(const llama_model * model, const char * key) {
    std::string   value(256, '\0');
    const int32_t length = llama_model_meta_val_str(model, key, value.data(), value.size());
    value.resize(static_cast<size_t>(std::clamp<int32_t>(length, 0, static_cast<int32_t>(value.size()) - 1)));
    return value;
}

// ggml's RWKV kernels take whole vectors of up to 64 numbers, and write behind a head that is no multiple of
// them. All trained models have heads of 64.
static void check_heads(const llama_model * model) {
    const std::string key    = metadata(model, "general.architecture") + ".wkv.head_size";
    const std::string size   = metadata(model, key.c_str());
    const auto        number = std::strtoul(size.c_str(), nullptr, 10);
    if (!size.empty() && (number == 0 || number % 64 != 0)) {
        throw Error(ErrorCode::model_invalid,
                    "the model cannot be computed: its heads of " + size + " numbers are no multiple of 64");
    }
}

Model::Model(const std::vector<std::string> & paths, bool memory_map, const LoadProgress & progress,
             const Placement & placement)
    : placement_(placement) {
    static std::once_flag initialised;
    std::call_once(initialised, llama_backend_init);
    // ggml wants tensors at multiples of 32 bytes; a file that is mapped has them where it has them.
    const CheckedModel checked = check_model_files(paths);
    files_                     = checked.paths;
    model_             = load(checked, memory_map && checked.alignment % 32 == 0, placement, progress);
    vocabulary_        = llama_model_get_vocab(model_.get());
    const bool decoder = llama_model_has_decoder(model_.get());
    const bool encoder = llama_model_has_encoder(model_.get());
    // Both at once: a translator, or the draft of another model.
    if ((decoder && encoder) || llama_model_is_diffusion(model_.get()) ||
        llama_vocab_type(vocabulary_) == LLAMA_VOCAB_TYPE_NONE || llama_vocab_n_tokens(vocabulary_) == 0) {
        throw Error(ErrorCode::model_invalid, NOT_USABLE);
    }
    causal_ = decoder && own_metadata("attention.causal") != "false";
    check_heads(model_.get());
}

// A scale that is no number leaves no trace in the logits: attention passes such scores over.
static bool has_sound_scale(const llama_adapter_lora * adapter) {
    char          alpha[64];
    const int32_t length = llama_adapter_meta_val_str(adapter, "adapter.lora.alpha", alpha, sizeof(alpha));
    return length < 0 || std::isfinite(std::strtod(alpha, nullptr));
}

size_t Model::add_adapter(const std::string & path) {
    LogCapture             log;
    llama_adapter_lora_ptr adapter(llama_adapter_lora_init(model_.get(), path.c_str()));
    if (!adapter) {
        const std::string told = log.error_after("failed to apply lora adapter: ");
        throw Error(ErrorCode::model_invalid,
                    "the adapter cannot be loaded: " + (told.empty() ? log.first_error() : told));
    }
    if (!has_sound_scale(adapter.get())) {
        throw Error(ErrorCode::model_invalid,
                    "the adapter cannot be loaded: its scale (adapter.lora.alpha) is not a number");
    }
    adapters_.push_back(std::move(adapter));
    return adapters_.size() - 1;
}

size_t Model::size() const {
    return static_cast<size_t>(llama_vocab_n_tokens(vocabulary_));
}

std::string Model::piece(Token token) const {
    return token_text(vocabulary_, token, false);
}

std::string Model::special_piece(Token token) const {
    return token_text(vocabulary_, token, true);
}

bool Model::is_end(Token token) const {
    return llama_vocab_is_eog(vocabulary_, token);
}

std::vector<Token> Model::tokenize(const std::string & text, bool add_special, bool parse_special) const {
    constexpr size_t longest = std::numeric_limits<int32_t>::max() - 8; // llama.cpp counts in 32 bits
    if (text.size() > longest) {
        throw Error(ErrorCode::invalid_request,
                    "a text may have at most " + std::to_string(longest) + " bytes");
    }
    std::vector<Token> tokens(text.size() + 8);
    const auto         run = [&] {
        return llama_tokenize(vocabulary_, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                              static_cast<int32_t>(tokens.size()), add_special, parse_special);
    };
    int32_t    count = 0;
    const auto split = [&] {
        count = run();
        if (count < 0) {
            tokens.resize(static_cast<size_t>(-count));
            count = run();
        }
    };
    // Only byte-pair encoding splits by regular expressions.
    with_regex_stack(llama_vocab_type(vocabulary_) == LLAMA_VOCAB_TYPE_BPE ? text.size() : 0, split);
    tokens.resize(static_cast<size_t>(std::max(count, 0)));
    return tokens;
}

std::string Model::detokenize(const std::vector<Token> & tokens) const {
    std::string text(4 * tokens.size() + 8, '\0');
    const auto  run = [&] {
        return llama_detokenize(vocabulary_, tokens.data(), static_cast<int32_t>(tokens.size()), text.data(),
                                static_cast<int32_t>(text.size()), /*remove_special*/ false,
                                /*unparse_special*/ true);
    };
    int32_t length = run();
    if (length < 0) {
        text.resize(static_cast<size_t>(-length));
        length = run();
    }
    text.resize(static_cast<size_t>(std::max(length, 0)));
    return text;
}

size_t Model::closing_tokens() const {
    const std::vector<Token> added  = tokenize("");
    const bool               opened = !added.empty() && added.front() == llama_vocab_bos(vocabulary_) &&
                                      (llama_vocab_get_add_bos(vocabulary_) || added.size() > 1);
    return added.size() - (opened ? 1 : 0);
}

std::vector<Token> Model::find_tokens(const std::string & text) const {
    std::vector<Token> found;
    const Token        count = llama_vocab_n_tokens(vocabulary_);
    for (Token token = 0; token < count; token++) {
        if (text == llama_vocab_get_text(vocabulary_, token)) {
            found.push_back(token);
        }
    }
    return found;
}

std::string Model::own_metadata(const std::string & name) const {
    const std::string key = metadata(model_.get(), "general.architecture") + "." + name;
    return metadata(model_.get(), key.c_str());
}

enum llama_pooling_type Model::pooling() const {
    const std::string written = own_metadata("pooling_type");
    for (const auto type : {LLAMA_POOLING_TYPE_MEAN, LLAMA_POOLING_TYPE_CLS, LLAMA_POOLING_TYPE_LAST,
                            LLAMA_POOLING_TYPE_RANK}) {
        if (written == std::to_string(static_cast<int>(type))) {
            return type;
        }
    }
    return LLAMA_POOLING_TYPE_UNSPECIFIED;
}

ModelInfo Model::info() const {
    ModelInfo info;
    info.name            = metadata(model_.get(), "general.name");
    info.architecture    = metadata(model_.get(), "general.architecture");
    info.parameters      = llama_model_n_params(model_.get());
    info.bytes           = llama_model_size(model_.get());
    info.vocabulary      = llama_vocab_n_tokens(vocabulary_);
    info.trained_context = llama_model_n_ctx_train(model_.get());
    info.chat_template   = llama_model_chat_template(model_.get(), nullptr) != nullptr;
    return info;
}

} // namespace headrace
