// The members behind scenario_json.h.
#include "simulator/scenario_json.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <set>

namespace headrace {

namespace {

using nlohmann::json;

constexpr const char * KIND_NAMES[] = {"prefill", "decode", "draft"};

// An object whose members are read one by one; finish() refuses those that nobody asked for.
class Members {
  public:
    explicit Members(const json & object) : object_(object) {
        if (!object.is_object()) {
            throw Error(ErrorCode::invalid_request, "an object is expected");
        }
    }

    template <class Value> Members & read(const char * name, Value & value) {
        known_.insert(name);
        if (const auto found = object_.find(name); found != object_.end()) {
            value = found->get<Value>();
        }
        return *this;
    }

    const json & part(const char * name) {
        static const json none = json::object();
        known_.insert(name);
        const auto found = object_.find(name);
        return found == object_.end() ? none : *found;
    }

    void finish() const {
        for (const auto & [name, value] : object_.items()) {
            if (!known_.contains(name)) {
                throw Error(ErrorCode::invalid_request, "there is no member \"" + name + "\"");
            }
        }
    }

  private:
    const json &          object_;
    std::set<std::string> known_;
};

Arrival read_arrival(const json & object) {
    Arrival arrival;
    Members members(object);
    for (const json & segment : members.part("prompt")) {
        arrival.prompt.push_back({segment.at(0).get<int64_t>(), segment.at(1).get<size_t>()});
    }
    members.read("id", arrival.id)
        .read("atMs", arrival.at_ms)
        .read("output", arrival.output)
        .read("priority", arrival.priority)
        .read("deadlineMs", arrival.deadline_ms)
        .read("cancelAtMs", arrival.cancel_at_ms)
        .read("contextKey", arrival.context_key)
        .read("adapter", arrival.adapter)
        .read("shift", arrival.shift)
        .finish();
    return arrival;
}

void read_cost(const json & object, CostModel & cost) {
    Members(object)
        .read("fixedMs", cost.fixed_ms)
        .read("decodeMs", cost.decode_ms)
        .read("prefillMs", cost.prefill_ms)
        .read("attentionMs", cost.attention_ms)
        .read("logitsMs", cost.logits_ms)
        .read("stateMs", cost.state_ms)
        .read("noise", cost.noise)
        .read("spikeChance", cost.spike_chance)
        .read("spikeMs", cost.spike_ms)
        .finish();
}

Scenario read(const json & object) {
    Scenario    scenario;
    Members     members(object);
    std::string schedule = "balanced";
    for (const json & arrival : members.part("arrivals")) {
        scenario.arrivals.push_back(read_arrival(arrival));
    }
    read_cost(members.part("cost"), scenario.cost);
    Members(members.part("drafting"))
        .read("tokens", scenario.drafting.tokens)
        .read("chance", scenario.drafting.chance)
        .read("ms", scenario.drafting.ms)
        .finish();
    members.read("slots", scenario.engine.slots)
        .read("batchSize", scenario.engine.batch_size)
        .read("queueLimit", scenario.engine.queue_limit)
        .read("schedule", schedule)
        .read("contextSize", scenario.context)
        .read("trims", scenario.trims)
        .read("cacheTokens", scenario.cache_tokens)
        .read("seed", scenario.seed)
        .read("keepPlans", scenario.keep_plans)
        .finish();
    scenario.engine.mode         = schedule_mode(schedule);
    scenario.engine.draft_tokens = scenario.drafting.tokens;
    return scenario;
}

// Microseconds are enough, and short to write.
double rounded(double ms) {
    return std::round(ms * 1000) / 1000;
}

json moment(double ms) {
    return ms < 0 ? json(nullptr) : json(rounded(ms));
}

json write_request(const RequestRecord & record) {
    json tokens = json::array();
    for (const double ms : record.token_ms) {
        tokens.push_back(rounded(ms));
    }
    return {
        {"id", record.id},
        {"outcome", record.outcome},
        {"ends", record.ends},
        {"submittedMs", moment(record.submitted_ms)},
        {"admittedMs", moment(record.admitted_ms)},
        {"endedMs", moment(record.ended_ms)},
        {"submittedPlan", record.submitted_plan},
        {"cancelledPlan", record.cancelled_plan == SIZE_MAX ? json(nullptr) : json(record.cancelled_plan)},
        {"endedPlan", record.ended_plan},
        {"promptTokens", record.prompt_tokens},
        {"cachedTokens", record.cached_tokens},
        {"tokenMs", std::move(tokens)}};
}

json write_plan(const PlanRecord & plan) {
    json contributions = json::array();
    for (const Contribution & part : plan.contributions) {
        contributions.push_back({part.slot, part.request, KIND_NAMES[static_cast<size_t>(part.kind)],
                                 part.position, part.wants_logits});
    }
    return {{"beganMs", rounded(plan.began_ms)},
            {"endedMs", rounded(plan.ended_ms)},
            {"contributions", std::move(contributions)}};
}

} // namespace

Scenario read_scenario(std::string_view text) {
    try {
        return read(json::parse(text));
    } catch (const json::exception & error) {
        throw Error(ErrorCode::invalid_request, error.what());
    }
}

std::string write_outcome(const Outcome & outcome) {
    json requests = json::array(), plans = json::array();
    for (const RequestRecord & record : outcome.requests) {
        requests.push_back(write_request(record));
    }
    for (const PlanRecord & plan : outcome.plans) {
        plans.push_back(write_plan(plan));
    }
    const EngineMetrics & metrics = outcome.metrics;
    return json{{"requests", std::move(requests)},
                {"plans", std::move(plans)},
                {"metrics",
                 {{"accepted", metrics.accepted},
                  {"finished", metrics.finished},
                  {"cancelled", metrics.cancelled},
                  {"failed", metrics.failed},
                  {"steps", metrics.steps},
                  {"busyMs", rounded(metrics.busy_ms)},
                  {"prefillTokens", metrics.prefill_tokens},
                  {"decodeTokens", metrics.decode_tokens},
                  {"cachedTokens", metrics.cached_tokens},
                  {"draftedTokens", metrics.drafted_tokens},
                  {"acceptedDrafts", metrics.accepted_drafts},
                  {"slidTokens", metrics.slid_tokens}}}}
        .dump();
}

} // namespace headrace
