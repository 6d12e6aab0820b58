// The option tables behind options.h.
#include "engine/options.h"

namespace headrace {

static const OptionDeclaration<LoadOptions> LOAD[] = {
    {"contextSize", &LoadOptions::context_size, 0, 1048576, true,
     "tokens of context per slot, at most what the model was trained with; 0 takes all of that"},
    {"slots", &LoadOptions::slots, 1, 64, true, "requests that run side by side, each with its own context"},
    {"threads", &LoadOptions::threads, 0, 256, true, "compute threads; 0 leaves it to the host"},
    {"batchSize", &LoadOptions::batch_size, 1, 8192, true, "tokens per forward pass, at most"},
};

static const OptionDeclaration<GenerationOptions> GENERATION[] = {
    {"maxTokens", &GenerationOptions::max_tokens, 1, 1048576, false, "tokens to generate, at most"},
    {"temperature", &GenerationOptions::temperature, 0, 5, false,
     "0 always takes the likeliest token; higher is more varied"},
    {"topK", &GenerationOptions::top_k, 0, 1048576, true, "sample among the k likeliest tokens; 0 among all"},
    {"topP", &GenerationOptions::top_p, 0, 1, false,
     "sample among the likeliest tokens that together reach this probability; 1 among all"},
    {"minP", &GenerationOptions::min_p, 0, 1, true,
     "drop tokens below this share of the likeliest one's probability; 0 drops none"},
    {"repeatPenalty", &GenerationOptions::repeat_penalty, 0.1, 10, true,
     "divide the logits of tokens among the last 64; 1 changes nothing"},
    {"frequencyPenalty", &GenerationOptions::frequency_penalty, -2, 2, false,
     "subtract this from a token's logit for each time it is among the last 64 tokens"},
    {"presencePenalty", &GenerationOptions::presence_penalty, -2, 2, false,
     "subtract this from a token's logit if it is among the last 64 tokens"},
    {"seed", &GenerationOptions::seed, -1, 4294967294, false,
     "same seed, same options, same text; -1 takes a new one each time"},
    {"stop", &GenerationOptions::stop, 0, 16, false,
     "strings that end the generation and are not part of the text"},
};

static constexpr const char * POOLING_CHOICES[] = {"model", "mean", "cls", "last"};

static const OptionDeclaration<EmbedOptions> EMBED[] = {
    {"pooling", &EmbedOptions::pooling, 0, 16, true,
     "how an input's token vectors become one: their mean, the first (cls) or the last; model takes what the "
     "file says, else mean for an encoder and last for a model that generates",
     POOLING_CHOICES},
    {"normalize", &EmbedOptions::normalize, 0, 1, false,
     "scale each vector to Euclidean length 1; a vector of zeros stays one"},
    {"truncate", &EmbedOptions::truncate, 0, 1, true,
     "cut an input that is longer than the model takes, instead of refusing the request"},
};

static const OptionDeclaration<TokenizeOptions> TOKENIZE[] = {
    {"addSpecial", &TokenizeOptions::add_special, 0, 1, true,
     "add the tokens that the model wants around a text, such as its beginning-of-text token"},
    {"parseSpecial", &TokenizeOptions::parse_special, 0, 1, true,
     "take the names of special tokens in the text for these tokens, not for letters"},
};

std::span<const OptionDeclaration<LoadOptions>> load_option_declarations() {
    return LOAD;
}

std::span<const OptionDeclaration<GenerationOptions>> generation_option_declarations() {
    return GENERATION;
}

std::span<const OptionDeclaration<EmbedOptions>> embed_option_declarations() {
    return EMBED;
}

std::span<const OptionDeclaration<TokenizeOptions>> tokenize_option_declarations() {
    return TOKENIZE;
}

} // namespace headrace
