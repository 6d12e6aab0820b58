// A model for host tests, small enough to see through: its vocabulary is the 256 bytes and an end token,
// and what it says next is decided by the test.
//
// Counterpart of engine/llama_decoder.h and engine/model.h; keeps a record of what it was asked to do.
#pragma once

#include "engine/decoder.h"
#include "engine/error.h"

#include <cmath>
#include <functional>
#include <map>

namespace headrace {

constexpr Token  FAKE_END        = 256;
constexpr size_t FAKE_VOCABULARY = 257;
constexpr Token  FAKE_NONSENSE   = -1; // from a test's Next: logits that are no numbers

class FakeVocabulary : public Vocabulary {
  public:
    size_t      size() const override { return FAKE_VOCABULARY; }
    std::string piece(Token token) const override { return std::string(1, static_cast<char>(token)); }
    bool        is_end(Token token) const override { return token == FAKE_END; }
};

class FakeDecoder : public Decoder {
  public:
    // next: the token that follows a slot's sequence so far.
    using Next = std::function<Token(const std::vector<Token> & sequence)>;

    explicit FakeDecoder(Next next, size_t context = 1000) : next_(std::move(next)), context_(context) {}

    void decode(const BatchPlan & plan) override {
        plans.push_back(plan);
        logits_.clear();
        for (const Contribution & contribution : plan.contributions) {
            auto & sequence = sequences[contribution.slot];
            if (static_cast<size_t>(contribution.position) != sequence.size()) {
                throw Error(ErrorCode::internal, "a position was skipped or repeated");
            }
            sequence.push_back(contribution.token);
            std::vector<float> row(FAKE_VOCABULARY, 0.0f);
            if (contribution.wants_logits) {
                const Token next = next_(sequence);
                if (next == FAKE_NONSENSE) {
                    row.assign(row.size(), std::nanf(""));
                } else {
                    row[static_cast<size_t>(next)] = 10.0f;
                }
            }
            logits_.push_back(std::move(row));
        }
    }

    std::span<const float> logits(size_t contribution) override { return logits_[contribution]; }

    void clear_slot(size_t slot) override { sequences.erase(static_cast<uint32_t>(slot)); }

    size_t context_size() const override { return context_; }

    std::vector<BatchPlan>                 plans;
    std::map<uint32_t, std::vector<Token>> sequences;

  private:
    Next                            next_;
    size_t                          context_;
    std::vector<std::vector<float>> logits_;
};

} // namespace headrace
