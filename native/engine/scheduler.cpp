// The first half of the step of scheduler.h: who goes next, and what a pass computes. What comes of it is in
// scheduler_results.cpp.
#include "engine/scheduler.h"

#include "engine/answer_rules.h"
#include "engine/bits.h"
#include "engine/replay.h"

#include <algorithm>

namespace headrace {

// Prompt tokens that must be saved for a request to wait for another one's prompt.
constexpr size_t WORTH_WAITING = 64;

Scheduler::Scheduler(SchedulerParts parts, Clock clock, SchedulerOptions options)
    : decoder_(parts.decoder), vocabulary_(parts.vocabulary), events_(parts.events), drafter_(parts.drafter),
      clock_(std::move(clock)), options_(options), slots_(options.slots),
      cache_(parts.decoder, parts.store, options.slots), planner_(options.slots, options.batch_size),
      pace_(options.mode, options.batch_size) {}

void Scheduler::check_room() const {
    const size_t free = slots_.size() - count_bits(occupied_);
    if (queue_.size() >= options_.queue_limit + free) {
        throw Error(ErrorCode::queue_full,
                    std::to_string(queue_.size()) + " requests wait already, and no more may (queueLimit)",
                    {{"waiting", static_cast<double>(queue_.size())},
                     {"queueLimit", static_cast<double>(options_.queue_limit)}});
    }
}

void Scheduler::submit(Request request) {
    request.times.submitted = clock_();
    totals_.accepted++;
    queue_.push(std::move(request));
}

void Scheduler::cancel(RequestId id) {
    if (queue_.cancel(id)) {
        return;
    }
    each_bit(occupied_, [&](size_t index) {
        Request & request = slots_[index].request;
        request.cancelled |= request.id == id;
    });
}

size_t Scheduler::unfinished() const {
    return queue_.size() + count_bits(occupied_);
}

double Scheduler::spare_ms() const {
    size_t decoding = 0, prefilling = 0;
    each_bit(occupied_,
             [&](size_t index) { (slots_[index].phase == SlotPhase::decode ? decoding : prefilling)++; });
    return pace_.spare_ms(decoding) / (prefilling > 0 ? 2 : 1); // prompts want some of it, too
}

EngineMetrics Scheduler::metrics() const {
    EngineMetrics metrics = totals_;
    metrics.waiting       = queue_.size();
    metrics.running       = count_bits(occupied_);
    return metrics;
}

void Scheduler::step() {
    drop_ended();
    admit();
    if (occupied_ == 0) {
        return;
    }
    const uint64_t members = choose_members();
    make_room_in_contexts(members);
    size_t decoding = 0;
    each_bit(members, [&](size_t index) { decoding += slots_[index].phase == SlotPhase::decode ? 1 : 0; });
    const bool   prompts = decoding < count_bits(members);
    const size_t budget  = prompts ? pace_.prefill_budget(decoding) : 0;
    const double began   = clock_();
    // Without guesses where the pass is to show what plain decoding costs.
    const bool guessed = draft(members, /*none*/ prompts && budget == 0);

    const BatchPlan & plan   = planner_.plan(slots_, members, budget);
    const double      before = clock_();
    decoder_.decode(plan);
    const double after = clock_();

    if (plan.draft_tokens == 0) {
        pace_.observe(plan.decode_tokens, plan.prefill_tokens, after - before);
    }
    pass_ms_ = guessed && plan.prefill_tokens == 0 ? after - began : 0;
    totals_.steps++;
    totals_.busy_ms += after - began;
    totals_.prefill_tokens += plan.prefill_tokens;
    totals_.decode_tokens += plan.decode_tokens + plan.draft_tokens;
    take_results(plan);
}

// Whether a request has missed its deadline, or will, with so many prompt tokens still to compute.
bool Scheduler::too_late(const Request & request, size_t to_compute) const {
    const double deadline =
        request.times.submitted - request.elapsed_ms + static_cast<double>(request.options.deadline_ms);
    return request.options.deadline_ms > 0 && clock_() + pace_.prefill_ms(to_compute) > deadline;
}

static Error missed_deadline(const Request & request) {
    return Error(ErrorCode::deadline_exceeded,
                 "the answer was not, or could not be, complete within " +
                     std::to_string(request.options.deadline_ms) + " ms",
                 {{"deadlineMs", static_cast<double>(request.options.deadline_ms)}});
}

// Ends what was cancelled or has no time left, before it costs another step.
void Scheduler::drop_ended() {
    for (Request & request : queue_.take_all([](const Request & r) { return r.cancelled; })) {
        finish_waiting(std::move(request), FinishReason::cancelled);
    }
    for (Request & request : queue_.take_all([](const Request & r) { return r.replay && r.replay->ended; })) {
        const FinishReason reason = *request.replay->ended;
        finish_waiting(std::move(request), reason);
    }
    for (const Request & request : queue_.take_all([&](const Request & r) { return too_late(r, 1); })) {
        events_.push_back(FailedEvent{request.id, missed_deadline(request)});
        totals_.failed++;
    }
    each_bit(occupied_, [&](size_t index) {
        if (slots_[index].request.cancelled) {
            finish(index, FinishReason::cancelled);
        } else {
            check_deadline(index);
        }
    });
}

// Ends a request for which there is nothing to compute any more.
void Scheduler::finish_waiting(Request request, FinishReason reason) {
    Slot none;
    none.request = std::move(request);
    begin_answer(none);
    conclude(none, reason);
}

void Scheduler::check_deadline(size_t index) {
    const Slot & slot = slots_[index];
    const size_t left = slot.phase == SlotPhase::prefill ? slot.request.prompt.size() - slot.computed : 0;
    if (too_late(slot.request, left)) {
        fail(index, missed_deadline(slot.request));
    }
}

void Scheduler::admit() {
    while (count_bits(occupied_) < slots_.size()) {
        auto request = queue_.take([&](const Request & waiting) { return may_start(waiting); });
        if (!request) {
            return;
        }
        std::optional<KvCache::Lease> lease;
        try {
            lease = cache_.acquire(*request);
        } catch (...) {
            queue_.push(std::move(*request)); // it ends with the others, not without a word
            throw;
        }
        if (!lease) {
            throw Error(ErrorCode::internal, "a slot was free, but no sequence of the KV cache");
        }
        start(std::move(*request), *lease);
        check_deadline(lease->sequence); // now it is known how much there is to compute
    }
}

// Not while its key is in use. Nor while a running prompt is computing a long beginning that both have: it
// stops there for a snapshot, and the other one has only the rest to pay.
bool Scheduler::may_start(const Request & waiting) {
    if (cache_.in_flight(waiting.options.context_key)) {
        return false;
    }
    bool waits = false;
    each_bit(occupied_, [&](size_t index) {
        Slot & slot = slots_[index];
        // A request in a hurry does not wait for one that is not.
        if (slot.phase != SlotPhase::prefill || slot.request.adapters_id != waiting.adapters_id ||
            slot.request.options.priority < waiting.options.priority || waiting.options.deadline_ms > 0) {
            return;
        }
        const size_t shared = common_beginning(slot.request.prompt, waiting.prompt);
        const auto   common = std::span(waiting.prompt).first(shared);
        if (shared <= slot.computed || shared < cache_.available(waiting) + WORTH_WAITING ||
            !cache_.would_keep(slot.lease, common)) {
            return;
        }
        waits = true;
        if (slot.stop_at <= slot.computed || shared < slot.stop_at) {
            slot.stop_at = shared;
        }
    });
    return !waits;
}

// Where the prompt's pass must stop next, for a snapshot that serves others; 0: nowhere.
size_t Scheduler::next_stop(const Slot & slot) const {
    if (slot.lease.checkpoint > slot.computed) {
        return slot.lease.checkpoint;
    }
    return decoder_.can_trim_saved() ? 0 : slot.request.prompt.size() - 1;
}

void Scheduler::start(Request request, KvCache::Lease lease) {
    Slot & slot                 = slots_[lease.sequence];
    slot.request                = std::move(request);
    slot.request.times.admitted = clock_();
    slot.lease                  = lease;
    slot.phase                  = SlotPhase::prefill;
    slot.planned_last           = totals_.steps; // behind those that have waited in a slot
    slot.computed               = lease.reused.tokens;
    occupied_ |= bit(lease.sequence);
    slot.sampler.emplace(slot.request, vocabulary_);
    begin_answer(slot);
    totals_.cached_tokens += lease.reused.tokens;
    totals_.slid_tokens += slot.request.slid;
    slot.stop_at = next_stop(slot);
    if (drafter_ && decoder_.can_trim()) {
        slot.governor.emplace(options_.draft_tokens);
        drafter_->begin(lease.sequence, slot.request.prompt);
    }
}

// Empty, or what was told of it already.
void Scheduler::begin_answer(Slot & slot) const {
    if (const auto & replay = slot.request.replay) {
        slot.text      = replay->stream;
        slot.shown     = replay->text;
        slot.output    = replay->tokens;
        slot.logprobs  = replay->logprobs;
        slot.announced = slot.output.size();
    } else {
        slot.text.emplace(slot.request.options.stop);
    }
}

// One pass computes with one set of adapters: of the slots, those that share the set of the slot that has
// waited longest.
uint64_t Scheduler::choose_members() {
    size_t leader = slots_.size();
    each_bit(occupied_, [&](size_t index) {
        const bool longer =
            leader == slots_.size() || slots_[index].planned_last < slots_[leader].planned_last;
        leader = longer ? index : leader;
    });
    const Request & chosen  = slots_[leader].request;
    uint64_t        members = 0;
    each_bit(occupied_, [&](size_t index) {
        if (slots_[index].request.adapters_id == chosen.adapters_id) {
            members |= bit(index);
            slots_[index].planned_last = totals_.steps + 1;
        }
    });
    decoder_.use_adapters(chosen.adapters);
    return members;
}

// Where the context is full and the request allows it, lets the older half of what follows the head go.
void Scheduler::make_room_in_contexts(uint64_t members) {
    const size_t context = decoder_.context_size();
    each_bit(members, [&](size_t index) {
        Slot & slot = slots_[index];
        if (slot.phase != SlotPhase::decode || slot.computed < context) {
            return;
        }
        const ContextSlide slide = slide_context(input_of(slot.request).size(), context);
        cache_.shift(slot.lease, slide.keep, slide.count);
        slot.computed -= slide.count;
        slot.request.slid += slide.count;
        totals_.slid_tokens += slide.count;
    });
}

// Returns whether the time it took was all spent on guesses.
bool Scheduler::draft(uint64_t members, bool none) {
    bool guessed = true;
    each_bit(members, [&](size_t index) {
        Slot & slot = slots_[index];
        slot.draft.clear();
        if (none || slot.phase != SlotPhase::decode || !slot.governor) {
            return;
        }
        const auto   wanted = static_cast<size_t>(slot.request.options.max_tokens) - slot.output.size();
        const size_t room   = decoder_.context_size() - slot.computed - 1;
        // The last token needs no guess behind it.
        const size_t at_most = std::min({wanted - 1, room, slot.governor->draft_limit()});
        if (at_most > 0) {
            guessed &= drafter_->draft(index, at_most, slot.draft);
        }
    });
    return guessed;
}

} // namespace headrace
