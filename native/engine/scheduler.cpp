// The step behind scheduler.h.
#include "engine/scheduler.h"

#include <algorithm>
#include <bit>

namespace headrace {

constexpr double PREFILL_TARGET_MS = 200;

template <class Visit> static void each_bit(uint64_t mask, Visit visit) {
    for (; mask != 0; mask &= mask - 1) {
        visit(static_cast<size_t>(std::countr_zero(mask)));
    }
}

Scheduler::Scheduler(Decoder & decoder, const Vocabulary & vocabulary, EventQueue & events, Clock clock,
                     size_t slots, size_t batch_size)
    : decoder_(decoder), vocabulary_(vocabulary), events_(events), clock_(std::move(clock)), slots_(slots),
      planner_(slots, batch_size), pace_(PREFILL_TARGET_MS, batch_size) {}

void Scheduler::submit(Request request) {
    request.times.submitted = clock_();
    queue_.push_back(std::move(request));
}

void Scheduler::cancel(RequestId id) {
    for (Request & request : queue_) {
        request.cancelled |= request.id == id;
    }
    each_bit(occupied_, [&](size_t index) {
        Request & request = slots_[index].request;
        request.cancelled |= request.id == id;
    });
}

size_t Scheduler::unfinished() const {
    return queue_.size() + static_cast<size_t>(std::popcount(occupied_));
}

void Scheduler::step() {
    drop_cancelled();
    admit();
    if (occupied_ == 0) {
        return;
    }
    const BatchPlan & plan   = planner_.plan(slots_, occupied_, pace_.budget());
    const double      before = clock_();
    decoder_.decode(plan);
    if (plan.decode_tokens == 0) {
        pace_.observe(plan.prefill_tokens, clock_() - before);
    }
    sample(plan);
}

void Scheduler::drop_cancelled() {
    std::erase_if(queue_, [&](const Request & request) {
        if (!request.cancelled) {
            return false;
        }
        DoneEvent done;
        done.id            = request.id;
        done.finish_reason = FinishReason::cancelled;
        done.usage         = {request.prompt.size(), 0, 0};
        done.stats         = measure(request.times, done.usage, clock_());
        events_.push_back(std::move(done));
        return true;
    });
    each_bit(occupied_, [&](size_t index) {
        if (slots_[index].request.cancelled) {
            finish(index, FinishReason::cancelled);
        }
    });
}

void Scheduler::admit() {
    for (size_t index = 0; index < slots_.size() && !queue_.empty(); index++) {
        if (occupied_ >> index & 1) {
            continue;
        }
        Slot & slot                 = slots_[index];
        slot.request                = std::move(queue_.front());
        slot.request.times.admitted = clock_();
        slot.phase                  = SlotPhase::prefill;
        slot.sampler.emplace(slot.request.options, vocabulary_.size(), slot.request.prompt);
        slot.text.emplace(slot.request.options.stop);
        queue_.pop_front();
        occupied_ |= uint64_t{1} << index;
    }
}

void Scheduler::sample(const BatchPlan & plan) {
    for (size_t i = 0; i < plan.contributions.size(); i++) {
        const Contribution & contribution = plan.contributions[i];
        Slot &               slot         = slots_[contribution.slot];
        slot.computed++;
        if (contribution.wants_logits) {
            slot.phase = SlotPhase::decode;
            try {
                take_token(contribution.slot, slot.sampler->sample(decoder_.logits(i)));
            } catch (const Error & error) {
                if (error.code != ErrorCode::numeric_fault) {
                    throw;
                }
                fail(contribution.slot, error); // this request's trouble, not its neighbours'
            }
        }
    }
}

void Scheduler::take_token(size_t index, Token token) {
    Slot &          slot    = slots_[index];
    const Request & request = slot.request;
    RequestTimes &  times   = slot.request.times;
    const double    now     = clock_();
    if (times.first_token < 0) {
        times.first_token = now;
    } else {
        times.intervals.push_back(now - times.last_token);
    }
    times.last_token = now;
    slot.last        = token;
    slot.output.push_back(token);

    const auto & stops = request.stop_tokens;
    const auto & kept  = request.preserved_tokens;
    const bool   text  = std::find(kept.begin(), kept.end(), token) != kept.end();
    if (vocabulary_.is_end(token) || std::find(stops.begin(), stops.end(), token) != stops.end()) {
        finish(index, FinishReason::stop);
    } else if (slot.text->push(text ? vocabulary_.special_piece(token) : vocabulary_.piece(token))) {
        finish(index, FinishReason::stop);
    } else if (slot.output.size() >= static_cast<size_t>(request.options.max_tokens) ||
               slot.computed >= decoder_.context_size()) {
        finish(index, FinishReason::length);
    }
}

void Scheduler::finish(size_t index, FinishReason reason) {
    Slot & slot = slots_[index];
    slot.text->finish();
    announce(slot);

    DoneEvent done;
    done.id            = slot.request.id;
    done.finish_reason = reason;
    done.usage         = {slot.request.prompt.size(), slot.output.size(), 0};
    done.stats         = measure(slot.request.times, done.usage, clock_());
    done.text          = std::move(slot.shown);
    done.token_ids     = std::move(slot.output);
    events_.push_back(std::move(done));

    release(index);
}

void Scheduler::fail(size_t index, const Error & error) {
    announce(slots_[index]);
    events_.push_back(FailedEvent{slots_[index].request.id, error});
    release(index);
}

void Scheduler::release(size_t index) {
    slots_[index] = Slot{};
    occupied_ &= ~(uint64_t{1} << index);
    decoder_.clear_slot(index);
}

void Scheduler::announce(Slot & slot) {
    std::string text = slot.text->take();
    if (text.empty() && slot.announced == slot.output.size()) {
        return;
    }
    slot.shown += text;
    TokensEvent tokens;
    tokens.id   = slot.request.id;
    tokens.text = std::move(text);
    tokens.token_ids.assign(slot.output.begin() + static_cast<ptrdiff_t>(slot.announced), slot.output.end());
    slot.announced = slot.output.size();
    events_.push_back(std::move(tokens));
}

void Scheduler::flush() {
    each_bit(occupied_, [&](size_t index) { announce(slots_[index]); });
}

void Scheduler::fail_all(const Error & error) {
    each_bit(occupied_, [&](size_t index) {
        events_.push_back(FailedEvent{slots_[index].request.id, error});
        slots_[index] = Slot{};
    });
    occupied_ = 0;
    for (const Request & request : queue_) {
        events_.push_back(FailedEvent{request.id, error});
    }
    queue_.clear();
}

} // namespace headrace
