// The engine's loop, one step at a time: admit → plan → decode → sample → emit.
//
// Owns the queue and the slots; knows models only as a Decoder and a Vocabulary. engine.cpp feeds it,
// the host drives it through hr_engine_tick.
#pragma once

#include "engine/batch_planner.h"
#include "engine/decoder.h"
#include "engine/event.h"
#include "engine/prefill_pace.h"
#include "engine/slot.h"

#include <deque>
#include <functional>

namespace headrace {

using Clock = std::function<double()>; // milliseconds, from any beginning, never going back

class Scheduler {
  public:
    // batch_size: tokens per forward pass at most. The decoder, vocabulary and queue outlive the scheduler.
    Scheduler(Decoder & decoder, const Vocabulary & vocabulary, EventQueue & events, Clock clock,
              size_t slots, size_t batch_size);

    // Queues a request; its prompt fits the context and is not empty.
    void submit(Request request);

    // Marks a request; it ends at the next step. Unknown ids are ignored.
    void cancel(RequestId id);

    // One step, if there is work. Text and tokens made are announced by flush().
    void step();

    // Leaves one tokens event for each request that has made progress since the last flush.
    void flush();

    size_t unfinished() const;

    // Ends every request with the same error; used when the engine cannot go on.
    void fail_all(const Error & error);

  private:
    void drop_cancelled();
    void admit();
    void sample(const BatchPlan & plan);
    void take_token(size_t index, Token token);
    void finish(size_t index, FinishReason reason);
    void fail(size_t index, const Error & error);
    void release(size_t index);
    void announce(Slot & slot);

    Decoder &           decoder_;
    const Vocabulary &  vocabulary_;
    EventQueue &        events_;
    Clock               clock_;
    std::deque<Request> queue_;
    std::vector<Slot>   slots_;
    uint64_t            occupied_ = 0; // bit i: slots_[i] holds a request
    BatchPlanner        planner_;
    PrefillPace         pace_;
};

} // namespace headrace
