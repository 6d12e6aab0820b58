// The loop behind simulation.h.
#include "simulator/simulation.h"

#include "engine/prefix_store.h"

#include "simulator/simulated_model.h"

#include <algorithm>

namespace headrace {

namespace {

struct Command {
    double at_ms  = 0;
    size_t index  = 0; // of the arrival
    bool   cancel = false;
};

std::vector<Command> make_commands(const std::vector<Arrival> & arrivals) {
    std::vector<Command> commands;
    for (size_t i = 0; i < arrivals.size(); i++) {
        if (i > 0 && (arrivals[i].id <= arrivals[i - 1].id || arrivals[i].at_ms < arrivals[i - 1].at_ms)) {
            throw Error(ErrorCode::invalid_request, "arrivals stand in the order of their ids and times");
        }
        commands.push_back({arrivals[i].at_ms, i, false});
        if (arrivals[i].cancel_at_ms >= 0) {
            commands.push_back({std::max(arrivals[i].at_ms, arrivals[i].cancel_at_ms), i, true});
        }
    }
    std::stable_sort(commands.begin(), commands.end(),
                     [](const Command & a, const Command & b) { return a.at_ms < b.at_ms; });
    return commands;
}

// Any number that differs from place to place, but not from run to run.
Token given_token(int64_t group, size_t place) {
    uint64_t mixed = static_cast<uint64_t>(group) * 0x9E3779B97F4A7C15u + place;
    mixed          = (mixed ^ (mixed >> 29)) * 0xBF58476D1CE4E5B9u;
    return FIRST_GIVEN + static_cast<Token>((mixed ^ (mixed >> 32)) % 50000);
}

std::vector<Token> make_prompt(const std::vector<Segment> & segments) {
    std::vector<Token> prompt;
    for (const Segment & segment : segments) {
        for (size_t i = 0; i < segment.tokens; i++) {
            prompt.push_back(segment.group == 0 ? SAID : given_token(segment.group, i));
        }
    }
    return prompt;
}

PrefixStoreSettings store_settings(const Scenario & scenario) {
    PrefixStoreSettings settings;
    settings.memory_bytes = scenario.cache_tokens * 2 * sizeof(Token); // the state, and its tokens
    settings.trimmable    = scenario.trims;
    return settings;
}

class Simulation {
  public:
    explicit Simulation(const Scenario & scenario)
        : scenario_(scenario), commands_(make_commands(scenario.arrivals)), decoder_(scenario, clock_),
          drafter_(scenario, clock_), store_(store_settings(scenario), [this] { return clock_.now; }),
          scheduler_(
              {decoder_, vocabulary_, store_, events_, drafter()}, [this] { return clock_.now; },
              scenario.engine) {}

    Outcome run() {
        for (const Arrival & arrival : scenario_.arrivals) {
            places_[arrival.id]    = outcome_.requests.size();
            RequestRecord & record = outcome_.requests.emplace_back();
            record.id              = arrival.id;
        }
        size_t next = 0;
        while (next < commands_.size() || scheduler_.unfinished() > 0) {
            while (next < commands_.size() && commands_[next].at_ms <= clock_.now) {
                take(commands_[next++]);
            }
            if (scheduler_.unfinished() > 0) {
                step();
            } else if (next < commands_.size()) {
                clock_.now = std::max(clock_.now, commands_[next].at_ms);
            }
        }
        outcome_.metrics = scheduler_.metrics();
        outcome_.plans   = decoder_.take_plans();
        return std::move(outcome_);
    }

  private:
    Drafter * drafter() { return scenario_.drafting.tokens > 0 ? &drafter_ : nullptr; }

    void take(const Command & command) {
        RequestRecord & record = outcome_.requests[command.index];
        if (!command.cancel) {
            submit(scenario_.arrivals[command.index], record);
        } else if (record.ends == 0) {
            record.cancelled_plan = decoder_.passes();
            scheduler_.cancel(record.id);
        }
    }

    void submit(const Arrival & arrival, RequestRecord & record) {
        Request request;
        request.id                  = arrival.id;
        request.prompt              = make_prompt(arrival.prompt);
        request.adapters_id         = arrival.adapter;
        request.health_watch        = HealthWatch::off;
        request.options.temperature = 0;
        request.options.seed        = 0;
        request.options.max_tokens  = arrival.output;
        request.options.priority    = arrival.priority;
        request.options.deadline_ms = arrival.deadline_ms;
        request.options.context_key = arrival.context_key;
        request.options.overflow    = arrival.shift ? "shift" : "error";
        record.submitted_ms         = clock_.now;
        record.submitted_plan       = decoder_.passes();
        record.prompt_tokens        = request.prompt.size();
        if (request.prompt.empty() || arrival.output < 1) {
            throw Error(ErrorCode::invalid_request, "a prompt or an answer is empty");
        }
        try {
            scheduler_.check_room();
            if (request.prompt.size() >= scenario_.context) {
                throw Error(ErrorCode::context_overflow, "the prompt does not fit");
            }
        } catch (const Error & refused) {
            return end(record, error_name(refused.code), clock_.now);
        }
        decoder_.expect(request.id, request.prompt);
        scheduler_.submit(std::move(request));
    }

    void step() {
        const size_t passes = decoder_.passes();
        const double began  = clock_.now;
        scheduler_.step();
        scheduler_.flush();
        if (passes == decoder_.passes() && events_.empty()) {
            throw Error(ErrorCode::internal, "a step did nothing, though requests are unfinished");
        }
        for (const Event & event : events_) {
            if (const auto * tokens = std::get_if<TokensEvent>(&event)) {
                auto & times = find(tokens->id).token_ms;
                times.insert(times.end(), tokens->token_ids.size(), clock_.now);
            } else if (const auto * done = std::get_if<DoneEvent>(&event)) {
                RequestRecord & record = find(done->id);
                record.admitted_ms     = record.submitted_ms + done->stats.queue_ms;
                record.cached_tokens   = done->usage.cached_tokens;
                end(record, FINISH_REASON_NAMES[static_cast<size_t>(done->finish_reason)],
                    record.submitted_ms + done->stats.total_ms, passes);
            } else if (const auto * failed = std::get_if<FailedEvent>(&event)) {
                end(find(failed->id), error_name(failed->error.code), began, passes);
            }
        }
        events_.clear();
    }

    void end(RequestRecord & record, const std::string & outcome, double at_ms) {
        end(record, outcome, at_ms, decoder_.passes());
    }

    static void end(RequestRecord & record, const std::string & outcome, double at_ms, size_t plan) {
        record.outcome    = outcome;
        record.ended_ms   = at_ms;
        record.ended_plan = plan;
        record.ends++;
    }

    RequestRecord & find(RequestId id) { return outcome_.requests[places_.at(id)]; }

    const Scenario &                      scenario_;
    std::vector<Command>                  commands_;
    VirtualClock                          clock_;
    EventQueue                            events_;
    SimulatedVocabulary                   vocabulary_;
    SimulatedDecoder                      decoder_;
    SimulatedDrafter                      drafter_;
    PrefixStore                           store_;
    Scheduler                             scheduler_;
    Outcome                               outcome_;
    std::unordered_map<RequestId, size_t> places_; // id → index of its record
};

} // namespace

Outcome simulate(const Scenario & scenario) {
    if (scenario.engine.slots < 1 || scenario.engine.slots > MAX_SLOTS || scenario.engine.batch_size < 1) {
        throw Error(ErrorCode::invalid_request, "slots or batchSize out of range");
    }
    return Simulation(scenario).run();
}

} // namespace headrace
