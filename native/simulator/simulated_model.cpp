// The costs behind simulated_model.h.
#include "simulator/simulated_model.h"

#include <algorithm>
#include <cstring>

namespace headrace {

SimulatedDecoder::SimulatedDecoder(const Scenario & scenario, VirtualClock & clock)
    : scenario_(scenario), clock_(clock), random_(scenario.seed), sequences_(scenario.engine.slots) {}

double SimulatedDecoder::cost(const BatchPlan & plan) {
    const CostModel & model = scenario_.cost;
    double            ms    = model.fixed_ms;
    for (const Contribution & contribution : plan.contributions) {
        ms += contribution.kind == ContributionKind::prefill ? model.prefill_ms : model.decode_ms;
        ms += model.attention_ms * contribution.position;
        ms += contribution.wants_logits ? model.logits_ms : 0;
    }
    if (model.noise > 0) {
        ms *= std::max(0.2, std::normal_distribution<double>(1, model.noise)(random_));
    }
    if (model.spike_chance > 0 && std::bernoulli_distribution(model.spike_chance)(random_)) {
        ms += model.spike_ms;
    }
    return ms;
}

void SimulatedDecoder::check_prompt(const Contribution & sampled) {
    const auto expected = expected_.find(sampled.request);
    if (expected == expected_.end()) {
        return;
    }
    if (sequences_[sampled.slot] != expected->second) {
        throw Error(ErrorCode::internal, "request " + std::to_string(sampled.request) +
                                             " was sampled over another prompt than its own");
    }
    expected_.erase(expected);
}

void SimulatedDecoder::decode(const BatchPlan & plan) {
    const double began = clock_.now;
    for (const Contribution & contribution : plan.contributions) {
        auto & sequence = sequences_.at(contribution.slot);
        if (static_cast<size_t>(contribution.position) != sequence.size()) {
            throw Error(ErrorCode::internal, "a position was skipped or repeated");
        }
        if (sequence.size() == scenario_.context) {
            throw Error(ErrorCode::internal, "a context was overfilled");
        }
        sequence.push_back(contribution.token);
        if (contribution.wants_logits && contribution.kind == ContributionKind::prefill) {
            check_prompt(contribution);
        }
    }
    clock_.now += cost(plan);
    passes_++;
    if (scenario_.keep_plans) {
        plans_.push_back({began, clock_.now, plan.contributions});
    }
}

std::span<const float> SimulatedDecoder::logits(size_t) {
    return row_;
}

void SimulatedDecoder::trim(size_t slot, size_t length) {
    auto & sequence = sequences_.at(slot);
    if (length > sequence.size() || (!scenario_.trims && length > 0 && length < sequence.size())) {
        throw Error(ErrorCode::internal, "a sequence was trimmed to what it cannot be");
    }
    sequence.resize(length);
}

void SimulatedDecoder::shift(size_t slot, size_t keep, size_t count) {
    auto &     sequence = sequences_.at(slot);
    const auto gap      = sequence.begin() + static_cast<ptrdiff_t>(keep);
    sequence.erase(gap, gap + static_cast<ptrdiff_t>(count));
}

size_t SimulatedDecoder::state_bytes(size_t slot) const {
    return sequences_.at(slot).size() * sizeof(Token);
}

SequenceState SimulatedDecoder::save(size_t slot) const {
    const auto & sequence = sequences_.at(slot);
    clock_.now += scenario_.cost.state_ms * static_cast<double>(sequence.size());
    const auto * bytes = reinterpret_cast<const uint8_t *>(sequence.data());
    return {bytes, bytes + sequence.size() * sizeof(Token)};
}

bool SimulatedDecoder::restore(size_t slot, std::span<const uint8_t> state) {
    auto & sequence = sequences_.at(slot);
    sequence.resize(state.size() / sizeof(Token));
    std::memcpy(sequence.data(), state.data(), state.size());
    clock_.now += scenario_.cost.state_ms * static_cast<double>(sequence.size());
    return true;
}

bool SimulatedDrafter::draft(size_t, size_t at_most, std::vector<Token> & guesses) {
    clock_.now += drafting_.ms;
    std::bernoulli_distribution right(drafting_.chance);
    while (guesses.size() < std::min(at_most, drafting_.tokens)) {
        guesses.push_back(right(random_) ? SAID : NEVER_SAID);
    }
    return true;
}

} // namespace headrace
