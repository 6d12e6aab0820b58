// The option tables behind options.h.
#include "engine/options.h"

namespace headrace {

static const char * const     SCHEDULES[]      = {"latency", "balanced", "throughput"};
static const char * const     SPECULATIONS[]   = {"none", "prompt", "draft"};
static const char * const     OVERFLOWS[]      = {"error", "shift"};
static const char * const     BACKENDS[]       = {"cpu", "webgpu"};
static const char * const     GPU_SELF_TESTS[] = {"auto", "force", "skip"};
static constexpr const char * HEALTH_WATCHES[] = {"full", "numbers", "off"};

static const OptionDeclaration<LoadOptions> LOAD[] = {
    {"contextSize", &LoadOptions::context_size, 0, 1048576, true,
     "tokens of context per slot, at most what the model was trained with; 0 takes all of that"},
    {"slots", &LoadOptions::slots, 1, 64, true, "requests that run side by side, each with its own context"},
    {"threads", &LoadOptions::threads, 0, 256, true, "compute threads; 0 leaves it to the host"},
    {"batchSize", &LoadOptions::batch_size, 1, 8192, true, "tokens per forward pass, at most"},
    {"schedule", &LoadOptions::schedule, 0, 16, true,
     "what prompts may cost the streams that run: latency lets them slow by about a third (a prompt moves on "
     "by a token at least), balanced to half their speed or 20 tokens per second, throughput as far as it "
     "goes",
     SCHEDULES},
    {"queueLimit", &LoadOptions::queue_limit, 0, 65536, true,
     "requests that may wait, for a slot or for their context key; one more is refused with queue_full"},
    {"speculation", &LoadOptions::speculation, 0, 16, true,
     "speculative decoding, the same text in fewer passes where it pays: prompt guesses from what the text "
     "said before, draft has a small model of the same vocabulary guess (draftModel)",
     SPECULATIONS},
    {"draftTokens", &LoadOptions::draft_tokens, 1, 64, true, "tokens guessed per pass, at most"},
    {"unifiedCache", &LoadOptions::unified_cache, 0, 1, true,
     "one KV cache for all slots together instead of one for each"},
    {"slidingCache", &LoadOptions::sliding_cache, 0, 1, true,
     "for models with sliding-window attention, keep only the window: less memory, but an earlier part of a "
     "conversation cannot be continued, unless there is a snapshot of it"},
    {"prefixCacheBytes", &LoadOptions::prefix_cache_bytes, 0, 1LL << 40, true,
     "memory for snapshots of computed prompts, which other requests continue from; 0 keeps none"},
    {"prefixCacheFolder", &LoadOptions::prefix_cache_folder, 0, 4096, true,
     "folder in which snapshots outlive the engine; empty keeps them in memory only"},
    {"prefixCacheDiskBytes", &LoadOptions::prefix_cache_disk_bytes, 0, 1LL << 44, true,
     "room for snapshots in that folder"},
    {"selfTest", &LoadOptions::self_test, 0, 1, true,
     "when loading, run six tokens to prove that every operation of the model is computed"},
    {"healthWatch", &LoadOptions::health_watch, 0, 16, true,
     "which logits end a request with numeric_fault: full looks at numbers and their distribution, numbers "
     "only at what is no number or always the same, off at nothing",
     HEALTH_WATCHES},
    {"backend", &LoadOptions::backend, 0, 16, true, "what computes: the CPU, or a GPU through WebGPU",
     BACKENDS},
    {"gpuLayers", &LoadOptions::gpu_layers, -1, 100000, true,
     "with backend webgpu: layers that the GPU computes, from the output backwards; -1 takes all"},
    {"gpuSelfTest", &LoadOptions::gpu_self_test, 0, 16, true,
     "with backend webgpu, before the first token, compare what the model's operations give on the GPU with "
     "what they give on the CPU: auto those that the host does not know to agree, force all, skip none",
     GPU_SELF_TESTS},
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
     "divide the logits of tokens among the last penaltyWindow ones; 1 changes nothing"},
    {"frequencyPenalty", &GenerationOptions::frequency_penalty, -2, 2, false,
     "subtract this from a token's logit for each time it is among the last penaltyWindow"},
    {"presencePenalty", &GenerationOptions::presence_penalty, -2, 2, false,
     "subtract this from a token's logit if it is among the last penaltyWindow"},
    {"seed", &GenerationOptions::seed, -1, 4294967294, false,
     "same seed, same options, same text; -1 takes a new one each time"},
    {"stop", &GenerationOptions::stop, 0, 16, false,
     "strings that end the generation and are not part of the text"},
    {"contextKey", &GenerationOptions::context_key, 0, 1024, true,
     "requests with the same key run one after another, and each continues from what the one before it left"},
    {"priority", &GenerationOptions::priority, -100, 100, true,
     "requests with a higher one go first, but one in eight turns is the oldest request's"},
    {"deadlineMs", &GenerationOptions::deadline_ms, 0, 86400000, true,
     "milliseconds from submission in which the answer must be whole; it fails with deadline_exceeded, as "
     "soon as it is clear that it cannot be; 0 sets none"},
    {"overflow", &GenerationOptions::overflow, 0, 16, true,
     "what happens when the context is full: error refuses a prompt that does not fit and ends the answer; "
     "shift keeps the beginning and lets the oldest rest slide out",
     OVERFLOWS},
    {"adapters", &GenerationOptions::adapters, 0, 16, true,
     "LoRA adapters to apply, by the name they were loaded under, as name or name:scale"},
    {"penaltyWindow", &GenerationOptions::penalty_window, 0, 1048576, true,
     "tokens of prompt and answer that the three penalties look back on; 0 switches them off"},
    {"typicalP", &GenerationOptions::typical_p, 0, 1, true,
     "sample among the tokens whose surprise is closest to the expected one and that together reach this "
     "probability; 1 among all"},
    {"topNSigma", &GenerationOptions::top_n_sigma, 0, 100, true,
     "drop tokens whose logit is more than this many standard deviations below the highest; 0 drops none"},
    {"dynatempRange", &GenerationOptions::dynatemp_range, 0, 5, true,
     "let the temperature vary by this much to both sides, higher where the model is less sure; 0 keeps it "
     "fixed"},
    {"dynatempExponent", &GenerationOptions::dynatemp_exponent, 0, 10, true,
     "how the temperature follows the model's uncertainty when dynatempRange is not 0"},
    {"dryMultiplier", &GenerationOptions::dry_multiplier, 0, 100, true,
     "strength of the DRY penalty on tokens that would prolong a repetition; 0 switches it off"},
    {"dryBase", &GenerationOptions::dry_base, 1, 10, true,
     "the DRY penalty is dryMultiplier times this, to the power of the repetition's length past "
     "dryAllowedLength"},
    {"dryAllowedLength", &GenerationOptions::dry_allowed_length, 1, 1048576, true,
     "tokens that may be repeated without a DRY penalty"},
    {"dryPenaltyLastN", &GenerationOptions::dry_penalty_last_n, 0, 1048576, true,
     "tokens of prompt and answer that DRY searches for repetitions; 0 switches it off"},
    {"drySequenceBreakers", &GenerationOptions::dry_sequence_breakers, 0, 16, true,
     "strings across which DRY sees no repetition, each of 1 to 40 bytes"},
    {"xtcProbability", &GenerationOptions::xtc_probability, 0, 1, true,
     "how often XTC drops all but the least likely of the tokens above xtcThreshold; 0 never"},
    {"xtcThreshold", &GenerationOptions::xtc_threshold, 0, 1, true,
     "probability from which on a token counts as a top choice for XTC; above 0.5 there is never a choice"},
    {"mirostat", &GenerationOptions::mirostat, 0, 2, true,
     "1 or 2: steer the text's surprise by this version of Mirostat, in place of topK, topP, minP, typicalP, "
     "topNSigma, XTC and dynatempRange; 0 does not"},
    {"mirostatTau", &GenerationOptions::mirostat_tau, 0, 20, true,
     "the surprise per token that Mirostat aims at, in bits"},
    {"mirostatEta", &GenerationOptions::mirostat_eta, 0, 1, true, "how fast Mirostat corrects itself"},
    {"logitBias", &GenerationOptions::logit_bias, -100, 100, true,
     "by token id, what to add to the token's logit"},
    {"grammar", &GenerationOptions::grammar, 0, 262144, true,
     "a GBNF grammar that the whole answer follows; the generation ends where the grammar ends"},
    {"logprobs", &GenerationOptions::logprobs, 0, 1, false,
     "tell each token's log probability in the model's own distribution, before any sampling option"},
    {"topLogprobs", &GenerationOptions::top_logprobs, 0, 20, false,
     "with logprobs: tell this many of the likeliest tokens as well"},
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
