// The life of an engine behind engine.h.
#include "engine/engine.h"

#include "engine/abort_guard.h"
#include "engine/fingerprint.h"
#include "engine/logit_watch.h"
#include "engine/model_drafter.h"
#include "engine/model_ops.h"
#include "engine/op_audit.h"
#include "engine/prompt_drafter.h"

#include <algorithm>
#include <chrono>

namespace headrace {

static double now_ms() {
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

Engine::Engine(Host host) : host_(host) {}

Engine::~Engine() {
    try {
        while (store_ && store_->persist_one()) {
        }
    } catch (const std::bad_alloc &) {
        // A snapshot less: the next session computes what it held.
    }
}

static LoadOptions resolve(LoadOptions options, const Host & host, const ModelInfo & model) {
    if (options.threads > host.max_threads) {
        throw Error(ErrorCode::invalid_option,
                    "threads: this build runs at most " + std::to_string(host.max_threads) + ", not " +
                        std::to_string(options.threads),
                    {{"option", "threads"}});
    }
    if (options.prefix_cache_folder.find('\0') != std::string::npos) {
        throw Error(ErrorCode::invalid_option, "prefixCacheFolder: a path cannot hold a zero byte",
                    {{"option", "prefixCacheFolder"}});
    }
    if (options.threads == 0) {
        options.threads = host.default_threads;
    }
    // Past the length it was trained with, a model goes wrong without a sign of it.
    if (model.trained_context > 0 &&
        (options.context_size == 0 || options.context_size > model.trained_context)) {
        options.context_size = model.trained_context;
    }
    // Every slot that decodes must fit into one pass, and no pass is larger than all contexts.
    options.batch_size = std::clamp(options.batch_size, options.slots, options.context_size * options.slots);
    return options;
}

// Of everything that decides what a state means. Only states that outlive the engine need it.
static std::string snapshot_fingerprint(const Model & model, const std::vector<AdapterFile> & adapters,
                                        const LoadOptions & options, const LoadProgress & progress) {
    if (options.prefix_cache_folder.empty()) {
        return "";
    }
    const auto go_on = [&](double) { return !progress || progress(1); }; // the weights are in memory already
    // A state tells the number of KV buffers, and fits only where there are as many.
    const int64_t            buffers = options.unified_cache ? 1 : options.slots;
    std::vector<std::string> parts   = {ggml_version(), options.sliding_cache ? "sliding" : "whole",
                                        std::to_string(buffers), fingerprint_files(model.files(), go_on)};
    for (const AdapterFile & file : adapters) {
        parts.push_back(fingerprint_file(file.path, go_on));
    }
    return combine_fingerprints(parts);
}

static PrefixStoreSettings prefix_store_settings(const LoadOptions & options, const Decoder & decoder,
                                                 std::string fingerprint) {
    constexpr uint64_t most = SIZE_MAX / 2; // 32 bits cannot count what some options ask for
    return {.memory_bytes = static_cast<size_t>(
                std::min<uint64_t>(static_cast<uint64_t>(options.prefix_cache_bytes), most)),
            .disk_bytes  = static_cast<uint64_t>(options.prefix_cache_disk_bytes),
            .folder      = options.prefix_cache_folder,
            .fingerprint = std::move(fingerprint),
            .trimmable   = decoder.can_trim_saved()};
}

static SchedulerOptions scheduler_options(const LoadOptions & options) {
    return {static_cast<size_t>(options.slots), static_cast<size_t>(options.batch_size),
            static_cast<size_t>(options.queue_limit), schedule_mode(options.schedule),
            static_cast<size_t>(options.draft_tokens)};
}

static void load_adapters(Model & model, const std::vector<AdapterFile> & files) {
    for (const AdapterFile & file : files) {
        const auto same = [&](const AdapterFile & other) { return other.name == file.name; };
        if (file.name.empty() || std::count_if(files.begin(), files.end(), same) > 1) {
            throw Error(ErrorCode::invalid_request, "each adapter needs a name of its own");
        }
        model.add_adapter(file.path);
    }
}

static std::unique_ptr<Drafter> make_drafter(const ModelFiles & files, const LoadOptions & options,
                                             const Host & host, const Model & model,
                                             ggml_threadpool & threads) {
    const bool by_model = options.speculation == "draft";
    if (by_model == files.draft_model.empty()) {
        throw Error(ErrorCode::invalid_request,
                    by_model ? "speculation \"draft\" needs a draftModel"
                             : "a draftModel is of use only with speculation \"draft\"");
    }
    if (by_model) {
        auto small = std::make_unique<Model>(files.draft_model, host.memory_map, LoadProgress());
        return std::make_unique<ModelDrafter>(std::move(small), model, options, threads);
    }
    if (options.speculation == "prompt") {
        return std::make_unique<PromptDrafter>(static_cast<size_t>(options.slots));
    }
    return nullptr;
}

// Null if the CPU computes everything. Throws Error (gpu_mismatch) if the GPU computes something else.
static std::optional<GpuUse> use_gpu(const Model & model, const LoadOptions & options,
                                     const ProvenOps & proven) {
    const Placement & placement = model.placement();
    if (!placement.device) {
        return std::nullopt;
    }
    GpuUse use;
    use.description  = ggml_backend_dev_description(placement.device);
    use.layers_total = llama_model_n_layer(model.get()) + 1;
    use.layers       = placement.layers < 0 ? use.layers_total : std::min(placement.layers, use.layers_total);
    if (options.gpu_self_test != "skip") {
        const bool slots = options.slots > 1 && !options.unified_cache;
        use.self_test =
            test_model_on_gpu(model, options.gpu_self_test == "auto" ? proven : ProvenOps(), slots);
    }
    return use;
}

void Engine::open(const ModelFiles & files, LoadOptions & options, const ProvenOps & proven,
                  const LoadProgress & progress) {
    const Placement placement{host_.gpu.chosen(options.backend), options.gpu_layers};
    model_  = std::make_unique<Model>(files.model, host_.memory_map, progress, placement);
    options = resolve(options, host_, model_->info());
    load_adapters(*model_, files.adapters);
    if (options.self_test) {
        ops_ = audit_ops(*model_);
    }
    gpu_     = use_gpu(*model_, options, proven);
    threads_ = start_compute_threads(options.threads);
    if (model_->is_causal()) {
        decoder_ = std::make_unique<LlamaDecoder>(*model_, options, *threads_);
        if (!decoder_->has_memory()) {
            decoder_.reset();
        }
    }
    const bool generates = decoder_ != nullptr;
    embed_limits_        = embed_limits(*model_, options, !generates);
    llama_embedder_      = std::make_unique<LlamaEmbedder>(*model_, options, embed_limits_, *threads_);
    if (!generates) {
        llama_embedder_->prepare();
        return;
    }
    drafter_ = make_drafter(files, options, host_, *model_, *threads_);
    store_   = std::make_unique<PrefixStore>(
        prefix_store_settings(options, *decoder_,
                              snapshot_fingerprint(*model_, files.adapters, options, progress)),
        now_ms);
}

int64_t Engine::load(const ModelFiles & files, LoadOptions options, const ProvenOps & proven,
                     const LoadProgress & progress) {
    const double before = now_ms();
    host_.gpu.forget_fault();
    try {
        with_abort_guard([&] { open(files, options, proven, progress); });
    } catch (const Error & raised) {
        const Error error = host_.gpu.explain(raised);
        if (error.code != ErrorCode::engine_aborted) {
            throw error;
        }
        // Nothing has been computed yet: what failed is a check of what the file says.
        throw Error(ErrorCode::model_invalid, std::string("the file contradicts itself: ") + error.what());
    }
    queue_limit_ = static_cast<size_t>(options.queue_limit);
    embedder_    = std::make_unique<Embedder>(*llama_embedder_, embed_limits_, events_, now_ms);
    if (decoder_) {
        intake_ = std::make_unique<Intake>(*model_, *decoder_, files.adapters,
                                           read_health_watch(options.health_watch));
        scheduler_ =
            std::make_unique<Scheduler>(SchedulerParts{*decoder_, *model_, *store_, events_, drafter_.get()},
                                        now_ms, scheduler_options(options));
    }
    events_.push_back(ReadyEvent{model_->info(), operations(), options, memory(), now_ms() - before, gpu_});
    return options.threads;
}

std::vector<std::string> Engine::operations() const {
    if (!generates()) {
        return {"embed"};
    }
    if (!model_->info().chat_template) {
        return {"query", "embed"};
    }
    return {"query", "chat", "embed"};
}

MemoryUse Engine::memory() const {
    MemoryUse use = decoder_ ? decoder_->memory() : llama_embedder_->memory();
    if (drafter_) {
        use += drafter_->memory();
    }
    return use;
}

void Engine::submit(Submission submission) {
    Request       request = intake_->prepare(submission);
    AcceptedEvent accepted{request.id, request.options, request.prompt.size(), {}};
    request.options.stop.insert(request.options.stop.end(), submission.stops.begin(), submission.stops.end());
    follow_replay(request, std::move(submission.told), *model_, decoder_->context_size());
    if (request.replay) {
        accepted.replayed_text = request.replay->text;
    }
    events_.push_back(std::move(accepted));
    scheduler_->submit(std::move(request));
}

void Engine::embed(EmbedSubmission submission) {
    if (embedder_->unfinished() > queue_limit_) {
        throw Error(ErrorCode::queue_full,
                    std::to_string(embedder_->unfinished()) +
                        " embeds wait already, and no more may (queueLimit)",
                    {{"queueLimit", static_cast<double>(queue_limit_)}});
    }
    EmbedRequest request = prepare_embed(submission, *model_, embed_limits_, generates());
    size_t       tokens  = 0;
    for (const std::vector<Token> & input : request.inputs) {
        tokens += input.size();
    }
    events_.push_back(AcceptedEvent{request.id, submission.options, tokens, {}});
    embedder_->submit(std::move(request));
}

void Engine::tokenize(RequestId id, const std::string & text, const TokenizeOptions & options) {
    events_.push_back(TokenizedEvent{id, model_->tokenize(text, options.add_special, options.parse_special)});
}

void Engine::detokenize(RequestId id, const std::vector<Token> & tokens) {
    for (size_t i = 0; i < tokens.size(); i++) {
        if (tokens[i] < 0 || static_cast<size_t>(tokens[i]) >= model_->size()) {
            throw Error(ErrorCode::invalid_request,
                        "tokenIds[" + std::to_string(i) + "] is " + std::to_string(tokens[i]) +
                            ", the vocabulary has the tokens 0 to " + std::to_string(model_->size() - 1),
                        {{"index", static_cast<double>(i)}});
        }
    }
    events_.push_back(DetokenizedEvent{id, model_->detokenize(tokens)});
}

void Engine::count_tokens(RequestId id, const std::string & text, const TokenizeOptions & options) {
    events_.push_back(
        CountedEvent{id, model_->tokenize(text, options.add_special, options.parse_special).size()});
}

void Engine::audit(RequestId id) {
    if (ops_.empty()) {
        ops_ = audit_ops(*model_);
    }
    events_.emplace_back(AuditEvent{id, ops_});
}

void Engine::cancel(RequestId id) {
    if (scheduler_) {
        scheduler_->cancel(id);
    }
    embedder_->cancel(id);
}

size_t Engine::unfinished() const {
    return (scheduler_ ? scheduler_->unfinished() : 0) + embedder_->unfinished();
}

EngineMetrics Engine::metrics() const {
    EngineMetrics metrics;
    if (scheduler_) {
        metrics           = scheduler_->metrics();
        metrics.snapshots = store_->stats();
    }
    if (model_->placement().device && host_.gpu.counters) {
        metrics.gpu = host_.gpu.counters();
    }
    return metrics;
}

size_t Engine::tick(double budget_ms) {
    const double end = now_ms() + budget_ms;
    host_.gpu.forget_fault();
    try {
        do {
            with_abort_guard([&] { step(); });
        } while (unfinished() > 0 && now_ms() < end);
    } catch (const Error & error) {
        throw host_.gpu.explain(error);
    }
    if (scheduler_) {
        scheduler_->flush();
    }
    if (unfinished() == 0 && store_) { // at least one: an idle engine is not called again
        while (store_->persist_one() && now_ms() < end) {
        }
    }
    return unfinished();
}

void Engine::step() {
    if (scheduler_) {
        scheduler_->step();
    }
    const bool beside = scheduler_ && scheduler_->unfinished() > 0;
    embedder_->step(beside ? std::optional(scheduler_->spare_ms()) : std::nullopt);
}

void Engine::fail(const Error & error) {
    if (scheduler_) {
        scheduler_->fail_all(error);
    }
    if (embedder_) {
        embedder_->fail_all(error);
    }
    events_.push_back(EngineFailedEvent{error});
}

} // namespace headrace
