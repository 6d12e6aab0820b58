// The engine's loop, one step at a time: admit → plan → decode → sample → emit.
//
// Owns the queue and the slots; knows models only as a Decoder and a Vocabulary. engine.cpp feeds it,
// the host drives it through hr_engine_tick.
#pragma once

#include "engine/batch_planner.h"
#include "engine/decoder.h"
#include "engine/drafter.h"
#include "engine/event.h"
#include "engine/kv_cache.h"
#include "engine/request_queue.h"
#include "engine/slot.h"
#include "engine/step_pace.h"

#include <functional>

namespace headrace {

using Clock = std::function<double()>; // milliseconds, from any beginning, never going back

struct SchedulerOptions {
    size_t       slots        = 1;
    size_t       batch_size   = 512; // tokens per forward pass at most
    size_t       queue_limit  = 256; // requests beyond the free slots that may wait
    ScheduleMode mode         = ScheduleMode::balanced;
    size_t       draft_tokens = 8; // guesses per stream and pass at most, where there is a drafter
};

// What a scheduler works with; all of it outlives the scheduler. drafter: null for no speculation.
struct SchedulerParts {
    Decoder &          decoder;
    const Vocabulary & vocabulary;
    PrefixStore &      store;
    EventQueue &       events;
    Drafter *          drafter = nullptr;
};

class Scheduler {
  public:
    Scheduler(SchedulerParts parts, Clock clock, SchedulerOptions options);

    // Throws Error (queue_full) when a request cannot be queued now.
    void check_room() const;

    // Queues a request; its prompt fits the context and is not empty.
    void submit(Request request);

    // Marks a request; it ends at the next step. Unknown ids are ignored.
    void cancel(RequestId id);

    // One step, if there is work. Text and tokens made are announced by flush().
    void step();

    // Leaves one tokens event for each request that has made progress since the last flush.
    void flush();

    size_t unfinished() const;

    // Milliseconds that a pass of somebody else's may take before the next step: what the schedule leaves
    // beside the streams that run.
    double spare_ms() const;

    EngineMetrics metrics() const;

    // Ends every request with the same error; used when the engine cannot go on.
    void fail_all(const Error & error);

  private:
    void     drop_ended();
    void     finish_waiting(Request request, FinishReason reason);
    void     check_deadline(size_t index);
    void     admit();
    bool     may_start(const Request & waiting);
    size_t   next_stop(const Slot & slot) const;
    void     start(Request request, KvCache::Lease lease);
    void     begin_answer(Slot & slot) const;
    uint64_t choose_members();
    bool     draft(uint64_t members, bool none);
    void     make_room_in_contexts(uint64_t members);
    void     take_results(const BatchPlan & plan);
    void     take_prompt(std::span<const Contribution> part, size_t first);
    void     take_tokens(std::span<const Contribution> part, size_t first);
    void     take_token(size_t index, Token token);
    void     finish(size_t index, FinishReason reason);
    void     conclude(Slot & slot, FinishReason reason);
    void     fail(size_t index, const Error & error);
    void     release(size_t index, bool keep);
    void     announce(Slot & slot);
    bool     too_late(const Request & request, size_t to_compute) const;

    Decoder &          decoder_;
    const Vocabulary & vocabulary_;
    EventQueue &       events_;
    Drafter *          drafter_;
    Clock              clock_;
    SchedulerOptions   options_;
    RequestQueue       queue_;
    std::vector<Slot>  slots_;
    uint64_t           occupied_ = 0; // bit i: slots_[i] holds a request
    KvCache            cache_;
    BatchPlanner       planner_;
    StepPace           pace_;
    EngineMetrics      totals_;
    double pass_ms_ = 0; // of the pass being taken in, with its drafting; 0: it did something else besides
};

} // namespace headrace
