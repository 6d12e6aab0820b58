// A model that computes nothing: its passes only take their time on a clock that nobody waits for.
//
// Counterpart of engine/llama_decoder.h, and of tests/fake_decoder.h, whose passes cost nothing but whose
// text a test decides. Here the model says token 0 for ever.
#pragma once

#include "engine/decoder.h"
#include "engine/drafter.h"

#include "simulator/scenario.h"

#include <array>
#include <random>
#include <unordered_map>

namespace headrace {

constexpr Token SAID        = 0;
constexpr Token NEVER_SAID  = 1;
constexpr Token FIRST_GIVEN = 2; // tokens of prompts begin here

struct VirtualClock {
    double now = 0;
};

class SimulatedVocabulary : public Vocabulary {
  public:
    size_t      size() const override { return FIRST_GIVEN; }
    std::string piece(Token) const override { return "x"; }
    bool        is_end(Token) const override { return false; }
};

// Throws Error (internal) when it is asked for what no model could do: a position skipped or repeated, or a
// prompt whose first token is sampled over something else than that prompt.
class SimulatedDecoder : public Decoder {
  public:
    // Scenario and clock outlive the decoder.
    SimulatedDecoder(const Scenario & scenario, VirtualClock & clock);

    // What the sequence of this request must hold when its first token is sampled.
    void expect(RequestId id, std::vector<Token> prompt) { expected_[id] = std::move(prompt); }

    void                   decode(const BatchPlan & plan) override;
    std::span<const float> logits(size_t contribution) override;
    size_t                 context_size() const override { return scenario_.context; }
    void                   use_adapters(std::span<const AdapterUse>) override {}
    bool                   can_trim() const override { return scenario_.trims; }
    bool                   can_trim_to(size_t, size_t) const override { return scenario_.trims; }
    bool                   can_trim_saved() const override { return scenario_.trims; }
    bool                   can_shift() const override { return scenario_.trims; }
    void                   trim(size_t slot, size_t length) override;
    void                   shift(size_t slot, size_t keep, size_t count) override;
    size_t                 state_bytes(size_t slot) const override;
    SequenceState          save(size_t slot) const override;
    bool                   restore(size_t slot, std::span<const uint8_t> state) override;

    size_t                  passes() const { return passes_; }
    std::vector<PlanRecord> take_plans() { return std::move(plans_); }

  private:
    double cost(const BatchPlan & plan);
    void   check_prompt(const Contribution & sampled);

    const Scenario &                                  scenario_;
    VirtualClock &                                    clock_;
    std::mt19937_64                                   random_;
    std::vector<std::vector<Token>>                   sequences_;
    std::unordered_map<RequestId, std::vector<Token>> expected_;
    std::array<float, FIRST_GIVEN>                    row_{1.0f, 0.0f};
    size_t                                            passes_ = 0;
    std::vector<PlanRecord>                           plans_;
};

class SimulatedDrafter : public Drafter {
  public:
    SimulatedDrafter(const Scenario & scenario, VirtualClock & clock)
        : drafting_(scenario.drafting), clock_(clock), random_(scenario.seed) {}

    void begin(size_t, std::span<const Token>) override {}
    void end(size_t) override {}
    void append(size_t, Token) override {}
    bool draft(size_t slot, size_t at_most, std::vector<Token> & guesses) override;

  private:
    const Drafting & drafting_;
    VirtualClock &   clock_;
    std::mt19937_64  random_;
};

} // namespace headrace
