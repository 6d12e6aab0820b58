// The second half of scheduler.h's step: what a pass has computed becomes tokens, text and events, and requests
// end. The first half, who computes what, is in scheduler.cpp.
#include "engine/scheduler.h"

#include "engine/answer_rules.h"
#include "engine/bits.h"
#include "engine/replay.h"

#include <algorithm>

namespace headrace {

void Scheduler::take_results(const BatchPlan & plan) {
    const std::span<const Contribution> all = plan.contributions;
    for (size_t first = 0; first < all.size();) {
        size_t end = first + 1;
        while (end < all.size() && all[end].slot == all[first].slot) {
            end++;
        }
        const size_t index = all[first].slot;
        const auto   part  = all.subspan(first, end - first);
        try {
            part.front().kind == ContributionKind::prefill ? take_prompt(part, first)
                                                           : take_tokens(part, first);
        } catch (const Error & error) {
            if (error.code != ErrorCode::numeric_fault && error.code != ErrorCode::grammar_invalid) {
                throw;
            }
            fail(index, error); // this request's trouble, not its neighbours'
        }
        first = end;
    }
}

// part: the prompt tokens of one slot that the pass has computed; first: their place in the plan.
void Scheduler::take_prompt(std::span<const Contribution> part, size_t first) {
    const size_t index = part.front().slot;
    Slot &       slot  = slots_[index];
    for (const Contribution & contribution : part) {
        cache_.append(slot.lease, contribution.token);
    }
    slot.computed += part.size();
    if (slot.computed == slot.stop_at || slot.computed == slot.request.prompt.size()) {
        cache_.save(slot.lease);
        slot.stop_at = next_stop(slot);
    }
    if (part.back().wants_logits) {
        slot.phase = SlotPhase::decode;
        take_token(index, slot.sampler->sample(decoder_.logits(first + part.size() - 1)));
    }
}

// part: the last token of one slot and the guesses behind it. A guess that is not what is sampled ends it.
void Scheduler::take_tokens(std::span<const Contribution> part, size_t first) {
    const size_t index   = part.front().slot;
    Slot &       slot    = slots_[index];
    const size_t drafted = part.size() - 1;
    for (const Contribution & contribution : part) {
        cache_.append(slot.lease, contribution.token);
    }
    slot.drafted += drafted;
    size_t taken = 0;
    while (taken < part.size() && (taken == 0 || part[taken].token == slot.last)) {
        slot.accepted_drafts += taken > 0 ? 1 : 0;
        slot.computed++;
        take_token(index, slot.sampler->sample(decoder_.logits(first + taken)));
        taken++;
        if (slot.phase == SlotPhase::idle) {
            return; // it has ended
        }
    }
    cache_.trim(slot.lease, slot.computed);
    if (slot.governor && pass_ms_ > 0) {
        slot.governor->observe(drafted, taken - 1, pass_ms_);
    }
}

void Scheduler::take_token(size_t index, Token token) {
    Slot &         slot  = slots_[index];
    RequestTimes & times = slot.request.times;
    const double   now   = clock_();
    if (times.first_token < 0) {
        times.first_token = now;
    } else {
        times.intervals.push_back(now - times.last_token);
    }
    times.last_token = now;
    slot.last        = token;
    slot.output.push_back(token);
    if (slot.sampler->logprobs()) {
        slot.logprobs.push_back(*slot.sampler->logprobs());
    }
    if (slot.governor) {
        drafter_->append(index, token);
    }

    const AnswerPosition position{slot.output.size(), slot.computed, slot.sampler->ended()};
    if (const auto reason =
            add_token(*slot.text, token, position, slot.request, vocabulary_, decoder_.context_size())) {
        finish(index, *reason);
    }
}

void Scheduler::finish(size_t index, FinishReason reason) {
    conclude(slots_[index], reason);
    release(index, /*keep*/ true);
}

void Scheduler::conclude(Slot & slot, FinishReason reason) {
    slot.text->finish();
    announce(slot);

    const size_t input  = input_of(slot.request).size();
    const size_t before = replayed(slot.request).size();
    const size_t reused = slot.lease.reused.tokens;
    // Rates are of what this engine has done.
    const Usage done_here{slot.request.prompt.size(), slot.output.size() - before, reused};

    DoneEvent done;
    done.id                    = slot.request.id;
    done.finish_reason         = reason;
    done.usage                 = {input, slot.output.size(), std::min(reused, input)};
    done.stats                 = measure(slot.request.times, done_here, clock_());
    done.stats.cache           = slot.lease.reused;
    done.stats.drafted         = slot.drafted;
    done.stats.accepted_drafts = slot.accepted_drafts;
    done.stats.slid            = slot.request.slid;
    done.stats.replayed        = before;
    done.text                  = std::move(slot.shown);
    done.token_ids             = std::move(slot.output);
    if (slot.request.options.logprobs) {
        done.logprobs = std::move(slot.logprobs);
    }
    events_.push_back(std::move(done));
    (reason == FinishReason::cancelled ? totals_.cancelled : totals_.finished)++;
}

void Scheduler::fail(size_t index, const Error & error) {
    Slot & slot = slots_[index];
    announce(slot);
    events_.push_back(FailedEvent{slot.request.id, error});
    totals_.failed++;
    release(index, /*keep*/ error.code == ErrorCode::deadline_exceeded);
}

void Scheduler::release(size_t index, bool keep) {
    Slot & slot = slots_[index];
    if (keep) {
        cache_.trim(slot.lease, slot.computed); // guesses that nobody has verified
    }
    cache_.release(slot.lease, keep);
    totals_.drafted_tokens += slot.drafted;
    totals_.accepted_drafts += slot.accepted_drafts;
    if (slot.governor) {
        drafter_->end(index);
    }
    slot = Slot{};
    occupied_ &= ~bit(index);
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
    if (slot.request.options.logprobs) {
        tokens.logprobs.emplace(slot.logprobs.begin() + static_cast<ptrdiff_t>(slot.announced),
                                slot.logprobs.end());
    }
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
    for (const Request & request : queue_.take_all([](const Request &) { return true; })) {
        events_.push_back(FailedEvent{request.id, error});
    }
    cache_.abandon();
}

} // namespace headrace
