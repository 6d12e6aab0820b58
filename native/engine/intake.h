// Makes requests of what a host submits: text becomes tokens, names become what they stand for, and what
// cannot be done is refused before any work.
//
// Counterparts: engine.cpp, which queues the requests; chat/chat_template.h, which has rendered the prompts.
#pragma once

#include "engine/decoder.h"
#include "engine/embedding.h"
#include "engine/model.h"
#include "engine/replay.h"

#include <string>
#include <vector>

namespace headrace {

// A LoRA adapter to load with a model. Requests ask for it by name.
struct AdapterFile {
    std::string name;
    std::string path;
    float       scale = 1; // where a request names none
};

// A request whose prompt is plain text.
struct Submission {
    RequestId                id = 0;
    std::string              prompt;
    GenerationOptions        options;
    Grammar                  grammar          = {};
    std::vector<Token>       preserved_tokens = {};
    std::vector<std::string> stops = {}; // end the text like those of the options; of the chat template
    std::string              turn_end; // the text that ends a turn in the model's chat template; may be empty
    ToldAnswer               told = {}; // by another engine, which this one goes on for
};

// A request for the vectors of texts.
struct EmbedSubmission {
    RequestId                id = 0;
    std::vector<std::string> inputs;
    EmbedOptions             options;
};

// What a generating engine takes in.
class Intake {
  public:
    // Model and decoder outlive the intake. adapters: by their index in the model.
    Intake(const Model & model, const Decoder & decoder, std::vector<AdapterFile> adapters,
           HealthWatch health_watch)
        : model_(model), decoder_(decoder), adapters_(std::move(adapters)), health_watch_(health_watch) {}

    // The request, and in submission.stops what of it is still text to look for.
    // Throws Error (invalid_request, invalid_option, context_overflow, grammar_invalid).
    Request prepare(Submission & submission) const;

  private:
    void fit(Request & request) const;
    void find_adapters(Request & request) const;

    const Model &            model_;
    const Decoder &          decoder_;
    std::vector<AdapterFile> adapters_;
    HealthWatch              health_watch_;
};

// The request for the vectors of these texts; submission.options.pooling becomes the one in force.
// generates: whether the model does. Throws Error (invalid_request, context_overflow, unsupported_operation).
EmbedRequest prepare_embed(EmbedSubmission & submission, const Model & model, const EmbedLimits & limits,
                           bool generates);

} // namespace headrace
