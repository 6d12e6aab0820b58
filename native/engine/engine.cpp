// The life of an engine behind engine.h.
#include "engine/engine.h"

#include "engine/abort_guard.h"

#include <algorithm>
#include <chrono>
#include <random>

namespace headrace {

static double now_ms() {
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

Engine::Engine(Host host) : host_(host) {}

Engine::~Engine() = default;

static LoadOptions resolve(LoadOptions options, const Host & host, const ModelInfo & model) {
    if (options.threads > host.max_threads) {
        throw Error(ErrorCode::invalid_option,
                    "threads: this build runs at most " + std::to_string(host.max_threads) + ", not " +
                        std::to_string(options.threads),
                    {{"option", "threads"}});
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

int64_t Engine::load(const std::string & path, LoadOptions options, const LoadProgress & progress) {
    const double before = now_ms();
    try {
        with_abort_guard([&] {
            model_   = std::make_unique<Model>(path, host_.memory_map, progress);
            options  = resolve(options, host_, model_->info());
            decoder_ = std::make_unique<LlamaDecoder>(*model_, options);
        });
    } catch (const Error & error) {
        if (error.code != ErrorCode::engine_aborted) {
            throw;
        }
        // Nothing has been computed yet: what failed is a check of what the file says.
        throw Error(ErrorCode::model_invalid, std::string("the file contradicts itself: ") + error.what());
    }
    scheduler_ =
        std::make_unique<Scheduler>(*decoder_, *model_, events_, now_ms, static_cast<size_t>(options.slots),
                                    static_cast<size_t>(options.batch_size));
    events_.push_back(ReadyEvent{model_->info(), options, now_ms() - before});
    return options.threads;
}

// Any seed but 2^32-1, which llama.cpp takes for "draw one yourself".
static int64_t new_seed() {
    return static_cast<int64_t>(std::random_device{}() % 0xFFFFFFFFu);
}

Request Engine::prepare(Submission & submission) const {
    Request request;
    request.id               = submission.id;
    request.prompt           = model_->tokenize(submission.prompt);
    request.options          = std::move(submission.options);
    request.grammar          = std::move(submission.grammar);
    request.preserved_tokens = std::move(submission.preserved_tokens);
    if (request.options.seed < 0) {
        request.options.seed = new_seed();
    }
    if (request.prompt.empty()) {
        throw Error(ErrorCode::invalid_request, "the prompt is empty");
    }
    const size_t context = decoder_->context_size();
    if (request.prompt.size() >= context) {
        throw Error(ErrorCode::context_overflow,
                    "the prompt has " + std::to_string(request.prompt.size()) +
                        " tokens, the context holds " + std::to_string(context) +
                        " and needs room for an answer",
                    {{"promptTokens", static_cast<double>(request.prompt.size())},
                     {"contextSize", static_cast<double>(context)}});
    }
    if (!submission.turn_end.empty()) {
        request.stop_tokens = model_->find_tokens(submission.turn_end);
    }
    for (const std::string & stop : submission.stops) {
        const std::vector<Token> tokens = model_->find_tokens(stop);
        request.stop_tokens.insert(request.stop_tokens.end(), tokens.begin(), tokens.end());
    }
    return request;
}

void Engine::submit(Submission submission) {
    Request request = prepare(submission);
    events_.push_back(AcceptedEvent{request.id, request.options, request.prompt.size()});
    // Where the vocabulary has the marker as a token, the same letters in the text are only letters.
    if (!submission.turn_end.empty() && request.stop_tokens.empty()) {
        request.options.stop.push_back(submission.turn_end);
    }
    for (const std::string & stop : submission.stops) {
        request.options.stop.push_back(stop);
    }
    scheduler_->submit(std::move(request));
}

void Engine::cancel(RequestId id) {
    scheduler_->cancel(id);
}

size_t Engine::tick(double budget_ms) {
    const double end = now_ms() + budget_ms;
    do {
        with_abort_guard([&] { scheduler_->step(); });
    } while (scheduler_->unfinished() > 0 && now_ms() < end);
    scheduler_->flush();
    return scheduler_->unfinished();
}

void Engine::fail(const Error & error) {
    if (scheduler_) {
        scheduler_->fail_all(error);
    }
    events_.push_back(EngineFailedEvent{error});
}

} // namespace headrace
