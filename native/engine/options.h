// The options of the engine: their values as plain structs, their declaration as one table each.
//
// abi/options_json.cpp fills the structs from JSON by these tables, abi/describe.cpp prints them.
// A new option is a member and a row, and code that honours it. Defaults are the members' initial values.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace headrace {

// By token id: a number that belongs to a token of the vocabulary.
using TokenNumbers = std::map<int32_t, double>;

constexpr size_t MAX_TOKEN_NUMBERS = 1024; // entries of such an option at most

// Chosen once, when a model is loaded.
struct LoadOptions {
    int64_t context_size = 4096; // tokens per slot; 0: all that the model was trained with
    int64_t slots        = 1;    // requests that run side by side
    int64_t threads      = 0;    // 0: the host's default
    int64_t batch_size   = 512;  // tokens per forward pass at most
    bool    self_test    = true; // prove at load that every op is computed

    std::string schedule    = "balanced"; // what prompts may cost running streams
    int64_t     queue_limit = 256;        // requests that wait at most

    std::string speculation  = "none"; // who guesses tokens ahead
    int64_t     draft_tokens = 8;      // guesses per pass at most

    bool        unified_cache      = false;        // one KV buffer for all slots instead of one for each
    bool        sliding_cache      = false;        // keep only the window in sliding-window layers
    int64_t     prefix_cache_bytes = 256 << 20;    // of snapshots in memory; 0 keeps none
    std::string prefix_cache_folder;               // where snapshots outlive the engine; empty: nowhere
    int64_t     prefix_cache_disk_bytes = 1 << 30; // of snapshots in that folder

    std::string health_watch = "full"; // which logits end a request: see logit_watch.h

    std::string backend       = "cpu";  // what computes: see gpu.h
    int64_t     gpu_layers    = -1;     // layers whose weights lie on the GPU; -1: all
    std::string gpu_self_test = "auto"; // which ops are compared with the CPU's: see gpu_self_test.h
};

// Chosen for each request.
struct GenerationOptions {
    int64_t                  max_tokens        = 512;
    double                   temperature       = 0.8;
    int64_t                  top_k             = 40;
    double                   top_p             = 0.95;
    double                   min_p             = 0.05;
    double                   repeat_penalty    = 1.0;
    double                   frequency_penalty = 0.0;
    double                   presence_penalty  = 0.0;
    int64_t                  seed              = -1; // negative: a new one each time
    std::vector<std::string> stop;
    std::string              context_key; // requests with the same key continue one another
    int64_t                  priority    = 0;
    int64_t                  deadline_ms = 0; // from submission to the last token; 0: none
    std::string              overflow    = "error";
    std::vector<std::string> adapters; // LoRA adapters by name, "name" or "name:scale"

    // Sampling; what each does is in options.cpp, in which order is in sampling.h.
    int64_t                  penalty_window     = 64; // tokens
    double                   typical_p          = 1.0;
    double                   top_n_sigma        = 0.0;
    double                   dynatemp_range     = 0.0;
    double                   dynatemp_exponent  = 1.0;
    double                   dry_multiplier     = 0.0;
    double                   dry_base           = 1.75;
    int64_t                  dry_allowed_length = 2;    // tokens
    int64_t                  dry_penalty_last_n = 4096; // tokens
    std::vector<std::string> dry_sequence_breakers{"\n", ":", "\"", "*"};
    double                   xtc_probability = 0.0;
    double                   xtc_threshold   = 0.1;
    int64_t                  mirostat        = 0; // 1, 2: the version of the method
    double                   mirostat_tau    = 5.0;
    double                   mirostat_eta    = 0.1;
    TokenNumbers             logit_bias;
    std::string              grammar;
    bool                     logprobs     = false;
    int64_t                  top_logprobs = 0;
};

// Chosen for each request for vectors.
struct EmbedOptions {
    std::string pooling   = "model"; // how the vectors of an input's tokens become one
    bool        normalize = false;   // to Euclidean length 1
    bool        truncate  = false;   // cut an input that is too long
};

// Chosen for each text that is only turned into tokens.
struct TokenizeOptions {
    bool add_special   = true;
    bool parse_special = true;
};

template <class Options> struct OptionDeclaration {
    using Member =
        std::variant<int64_t Options::*, double Options::*, bool Options::*, std::string Options::*,
                     std::vector<std::string> Options::*, TokenNumbers Options::*>;

    const char * name; // as on the wire, camelCase
    Member       member;
    double minimum; // of the number, of the length of a list or a string, or of each of a token's numbers
    double maximum;
    bool   local_only; // refused by remote endpoints
    const char * help;

    std::span<const char * const> choices = {}; // of a string: all it may be; empty: anything
};

std::span<const OptionDeclaration<LoadOptions>>       load_option_declarations();
std::span<const OptionDeclaration<GenerationOptions>> generation_option_declarations();
std::span<const OptionDeclaration<EmbedOptions>>      embed_option_declarations();
std::span<const OptionDeclaration<TokenizeOptions>>   tokenize_option_declarations();

} // namespace headrace
