// Passes and pooling behind embedding.h.
#include "engine/embedding.h"

#include <algorithm>
#include <cmath>

namespace headrace {

Embedder::Embedder(TokenEmbedder & model, const EmbedLimits & limits, EventQueue & events,
                   std::function<double()> clock)
    : model_(model), limits_(limits), events_(events), clock_(std::move(clock)),
      pace_(ScheduleMode::balanced, limits.pass) {}

void Embedder::submit(EmbedRequest request) {
    Work work;
    work.request   = std::move(request);
    work.submitted = clock_();
    queue_.push_back(std::move(work));
}

void Embedder::cancel(RequestId id) {
    for (Work & work : queue_) {
        work.cancelled |= work.request.id == id;
    }
}

void Embedder::drop_cancelled() {
    std::erase_if(queue_, [&](const Work & work) {
        if (work.cancelled) {
            events_.push_back(
                FailedEvent{work.request.id, Error(ErrorCode::cancelled, "the request was cancelled")});
        }
        return work.cancelled;
    });
}

void Embedder::step(std::optional<double> spare_ms) {
    drop_cancelled();
    if (queue_.empty()) {
        return;
    }
    Work & work = queue_.front();
    if (work.started < 0) {
        work.started = clock_();
    }
    try {
        compute(work, spare_ms ? affordable(*spare_ms) : limits_.pass);
    } catch (const Error & error) {
        if (error.code == ErrorCode::engine_aborted) {
            throw;
        }
        events_.push_back(FailedEvent{work.request.id, error});
        queue_.pop_front();
        model_.reset();
        return;
    }
    if (work.vectors.size() == work.request.inputs.size()) {
        finish_request();
    }
}

// Tokens of a pass that takes so long; few while nothing is known.
size_t Embedder::affordable(double ms) const {
    constexpr double first = 16;
    const double     each  = pace_.token_ms();
    const double     most  = static_cast<double>(limits_.pass);
    return static_cast<size_t>(std::clamp(each > 0 ? ms / each : first, 1.0, most));
}

void Embedder::compute(Work & work, size_t budget) {
    plan(work, budget);
    const double before = clock_();
    model_.run(pass_);
    pace_.observe(0, pass_.entries.size(), clock_() - before);
    collect(work);
}

// Whole inputs as long as there is room, else the next part of one.
void Embedder::plan(const Work & work, size_t budget) {
    pass_.entries.clear();
    pass_.fresh = work.offset == 0;
    pass_.room  = 0;
    for (size_t index = work.vectors.size(); index < work.request.inputs.size(); index++) {
        const std::vector<Token> & input    = work.request.inputs[index];
        const size_t               sequence = index - work.vectors.size();
        const size_t               begin    = sequence == 0 ? work.offset : 0;
        const size_t               left     = budget - std::min(budget, pass_.entries.size());
        const bool                 fits     = input.size() - begin <= left;
        if (sequence > 0 && (!fits || sequence == limits_.sequences)) {
            break;
        }
        const size_t count = fits || limits_.whole ? input.size() - begin : left;
        for (size_t i = begin; i < begin + count; i++) {
            pass_.entries.push_back({input[i], static_cast<int32_t>(i), static_cast<int32_t>(sequence)});
        }
        pass_.room += input.size();
        if (begin > 0 || begin + count < input.size()) {
            break; // an input in parts has its passes for itself
        }
    }
}

void Embedder::collect(Work & work) {
    for (size_t i = 0; i < pass_.entries.size(); i++) {
        const size_t                 length = work.request.inputs[work.vectors.size()].size();
        const std::span<const float> vector = model_.vector(i);
        const bool                   first = work.offset == 0, last = work.offset + 1 == length;
        work.sum.resize(vector.size());
        if (work.request.pooling == Pooling::mean || (work.request.pooling == Pooling::cls && first) ||
            (work.request.pooling == Pooling::last && last)) {
            std::transform(vector.begin(), vector.end(), work.sum.begin(), work.sum.begin(), std::plus<>());
        }
        work.offset++;
        if (last) {
            finish_input(work);
        }
    }
}

static void check_numbers(const std::vector<double> & vector, size_t input) {
    const auto count =
        std::count_if(vector.begin(), vector.end(), [](double x) { return !std::isfinite(x); });
    if (count > 0) {
        throw Error(ErrorCode::numeric_fault,
                    "the model computed nonsense: " + std::to_string(count) + " of " +
                        std::to_string(vector.size()) + " components of the vector of inputs[" +
                        std::to_string(input) + "] are not numbers",
                    {{"notNumbers", static_cast<double>(count)},
                     {"dimensions", static_cast<double>(vector.size())},
                     {"index", static_cast<double>(input)}});
    }
}

void Embedder::finish_input(Work & work) {
    check_numbers(work.sum, work.vectors.size());
    double scale = work.request.pooling == Pooling::mean ? 1.0 / static_cast<double>(work.offset) : 1.0;
    if (work.request.normalize) {
        double squares = 0;
        for (const double value : work.sum) {
            squares += value * value;
        }
        scale = squares > 0 ? 1.0 / std::sqrt(squares) : 1.0;
    }
    std::vector<float> & vector = work.vectors.emplace_back(work.sum.size());
    std::transform(work.sum.begin(), work.sum.end(), vector.begin(),
                   [scale](double value) { return static_cast<float>(value * scale); });
    work.sum.clear();
    work.offset = 0;
}

void Embedder::finish_request() {
    Work & work = queue_.front();

    EmbeddedEvent done;
    done.id      = work.request.id;
    done.vectors = std::move(work.vectors);
    for (const std::vector<Token> & input : work.request.inputs) {
        done.usage.input_tokens += input.size();
    }
    const double finished = clock_();
    done.stats.queue_ms   = work.started - work.submitted;
    done.stats.total_ms   = finished - work.submitted;
    if (finished > work.started) {
        done.stats.tokens_per_second =
            1000.0 * static_cast<double>(done.usage.input_tokens) / (finished - work.started);
    }
    events_.push_back(std::move(done));
    queue_.pop_front();
}

void Embedder::fail_all(const Error & error) {
    for (const Work & work : queue_) {
        events_.push_back(FailedEvent{work.request.id, error});
    }
    queue_.clear();
}

} // namespace headrace
