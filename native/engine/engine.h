// The engine: a model, its decoder and the scheduler, behind prompts and events.
//
// One per endpoint, on one thread. Knows no JSON and no templates: abi/headrace.cpp brings prompts that
// are rendered already.
#pragma once

#include "engine/llama_decoder.h"
#include "engine/model.h"
#include "engine/prefix_store.h"
#include "engine/scheduler.h"

#include <memory>
#include <string>

namespace headrace {

// What the engine must know of where it runs.
struct Host {
    bool    memory_map      = true;
    int64_t default_threads = 1;
    int64_t max_threads     = 1;
};

// A LoRA adapter to load with a model. Requests ask for it by name.
struct AdapterFile {
    std::string name;
    std::string path;
    float       scale = 1; // where a request names none
};

// What an engine is made of.
struct ModelFiles {
    std::string              model;
    std::vector<AdapterFile> adapters;
    std::string              draft_model; // for speculative decoding; may be empty
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
};

class Engine {
  public:
    explicit Engine(Host host);
    ~Engine();

    // Loads the model, leaves a ReadyEvent and returns the compute threads in force.
    // Throws Error; then the engine is of no use.
    int64_t load(const ModelFiles & files, LoadOptions options, const LoadProgress & progress);

    // Leaves an AcceptedEvent. Throws Error when the request cannot be taken.
    void submit(Submission submission);

    // Leaves an AuditEvent: what the model's graphs consist of and what computes it. Without the load option
    // selfTest it is found out now, for the time of six tokens. Throws Error (kernel_missing).
    void audit(RequestId id);

    void cancel(RequestId id);

    // Steps until budget_ms are spent, at least once if there is work. Returns unfinished requests.
    // Throws Error when the engine cannot go on; the caller then ends it with fail().
    size_t tick(double budget_ms);

    // Ends every unfinished request with this error, and leaves an EngineFailedEvent.
    void fail(const Error & error);

    const Model & model() const { return *model_; }
    EngineMetrics metrics() const { return scheduler_->metrics(); }
    EventQueue &  events() { return events_; }

  private:
    void    open(const ModelFiles & files, LoadOptions & options, const LoadProgress & progress);
    Request prepare(Submission & submission) const;
    void    fit(Request & request) const;
    void    find_adapters(Request & request) const;

    Host                          host_;
    EventQueue                    events_;
    std::unique_ptr<Model>        model_;
    std::vector<AdapterFile>      adapters_; // by their index in the model
    std::vector<AuditedOp>        ops_;      // of the model; empty: not audited yet
    std::unique_ptr<LlamaDecoder> decoder_;
    std::unique_ptr<Drafter>      drafter_; // null: no speculation
    std::unique_ptr<PrefixStore>  store_;
    std::unique_ptr<Scheduler>    scheduler_;
};

} // namespace headrace
