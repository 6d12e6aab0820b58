// The engine: a model, its decoder and the scheduler, behind prompts and events; beside them the embedder.
//
// One per endpoint, on one thread. Knows no JSON and no templates: abi/headrace.cpp brings prompts that
// are rendered already.
#pragma once

#include "engine/compute_threads.h"
#include "engine/gpu.h"
#include "engine/intake.h"
#include "engine/llama_decoder.h"
#include "engine/llama_embedder.h"
#include "engine/model.h"
#include "engine/prefix_store.h"
#include "engine/scheduler.h"

#include <memory>
#include <optional>
#include <set>
#include <string>

namespace headrace {

// What the engine must know of where it runs.
struct Host {
    bool    memory_map      = true;
    int64_t default_threads = 1;
    int64_t max_threads     = 1;
    Gpu     gpu;
};

// What an engine is made of.
struct ModelFiles {
    std::vector<std::string> model; // one file, or the shards of one model
    std::vector<AdapterFile> adapters;
    std::vector<std::string> draft_model; // likewise, for speculative decoding; may be empty
};

// Signatures of operations that this GPU is known to compute as the CPU does: see gpu_self_test.h.
using ProvenOps = std::set<std::string>;

class Engine {
  public:
    explicit Engine(Host host);
    ~Engine();

    // Loads the model, leaves a ReadyEvent and returns the compute threads in force.
    // Throws Error; then the engine is of no use.
    int64_t load(const ModelFiles & files, LoadOptions options, const ProvenOps & proven,
                 const LoadProgress & progress);

    // What a call that was aborted is to be told as: the GPU may be the cause.
    Error explain(const Error & aborted) const { return host_.gpu.explain(aborted); }

    // Throws Error (queue_full) when no request can be queued now.
    void check_room() const { scheduler_->check_room(); }

    // Leaves an AcceptedEvent. Throws Error when the request cannot be taken.
    void submit(Submission submission);

    void embed(EmbedSubmission submission);

    // Questions about texts, answered at once. Throw Error (invalid_request).
    void tokenize(RequestId id, const std::string & text, const TokenizeOptions & options);
    void detokenize(RequestId id, const std::vector<Token> & tokens);
    void count_tokens(RequestId id, const std::string & text, const TokenizeOptions & options);

    // Leaves an AuditEvent: what the model's graphs consist of and what computes it. Without the load option
    // selfTest it is found out now, for the time of six tokens. Throws Error (kernel_missing).
    void audit(RequestId id);

    void cancel(RequestId id);

    // Whether the model can be queried; all that load can embed.
    bool generates() const { return scheduler_ != nullptr; }

    // Steps until budget_ms are spent, at least once if there is work. Returns unfinished requests.
    // Throws Error when the engine cannot go on; the caller then ends it with fail().
    size_t tick(double budget_ms);

    // Ends every unfinished request with this error, and leaves an EngineFailedEvent.
    void fail(const Error & error);

    const Model & model() const { return *model_; }
    EngineMetrics metrics() const;
    EventQueue &  events() { return events_; }

  private:
    void                     step();
    void                     open(const ModelFiles & files, LoadOptions & options, const ProvenOps & proven,
                                  const LoadProgress & progress);
    std::vector<std::string> operations() const;
    MemoryUse                memory() const;
    size_t                   unfinished() const;

    Host                   host_;
    EventQueue             events_;
    std::unique_ptr<Model> model_;
    std::vector<AuditedOp> ops_; // of the model; empty: not audited yet
    std::optional<GpuUse>  gpu_; // null: the CPU computes everything
    // Of a model that generates; null for one that only embeds.
    std::unique_ptr<LlamaDecoder> decoder_;
    std::unique_ptr<Drafter>      drafter_; // null: no speculation
    std::unique_ptr<PrefixStore>  store_;
    std::unique_ptr<Scheduler>    scheduler_;
    std::unique_ptr<Intake>       intake_;
    // Of every model.
    EmbedLimits                    embed_limits_;
    std::unique_ptr<LlamaEmbedder> llama_embedder_;
    std::unique_ptr<Embedder>      embedder_;
    size_t                         queue_limit_ = 0; // of embeds that wait
    ComputeThreads                 threads_;         // last, to end first
};

} // namespace headrace
