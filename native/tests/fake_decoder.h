// A model for host tests, small enough to see through: its vocabulary is the 256 bytes and an end token,
// and what it says next is decided by the test.
//
// Counterpart of engine/llama_decoder.h and engine/model.h; keeps a record of what it was asked to do.
#pragma once

#include "engine/decoder.h"
#include "engine/error.h"

#include <cmath>
#include <cstring>
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

    size_t context_size() const override { return context_; }

    void use_adapters(std::span<const AdapterUse> adapters) override {
        adapters_in_use.assign(adapters.begin(), adapters.end());
    }

    bool can_trim() const override { return trims; }
    bool can_shift() const override { return trims; }
    bool can_trim_saved() const override { return trims && saved_trims; }
    bool can_trim_to(size_t slot, size_t length) const override {
        const auto from = gone_before.find(static_cast<uint32_t>(slot));
        return trims && (from == gone_before.end() || length >= from->second);
    }

    void trim(size_t slot, size_t length) override {
        auto & sequence = sequences[static_cast<uint32_t>(slot)];
        if (length > sequence.size() || (!trims && length > 0 && length < sequence.size())) {
            throw Error(ErrorCode::internal, "a sequence was trimmed to what it cannot be");
        }
        sequence.resize(length);
    }

    void shift(size_t slot, size_t keep, size_t count) override {
        auto &     sequence = sequences[static_cast<uint32_t>(slot)];
        const auto gap      = sequence.begin() + static_cast<ptrdiff_t>(keep);
        sequence.erase(gap, gap + static_cast<ptrdiff_t>(count));
    }

    size_t state_bytes(size_t slot) const override {
        return sequences.at(static_cast<uint32_t>(slot)).size() * sizeof(Token);
    }

    SequenceState save(size_t slot) const override {
        const auto & sequence = sequences.at(static_cast<uint32_t>(slot));
        const auto * bytes    = reinterpret_cast<const uint8_t *>(sequence.data());
        saves++;
        return {bytes, bytes + sequence.size() * sizeof(Token)};
    }

    bool restore(size_t slot, std::span<const uint8_t> state) override {
        auto & sequence = sequences[static_cast<uint32_t>(slot)];
        sequence.resize(state.size() / sizeof(Token));
        std::memcpy(sequence.data(), state.data(), state.size());
        restores++;
        if (restores_fail) {
            sequence.clear();
        }
        return !restores_fail;
    }

    // Tokens computed since the last call.
    size_t computed() {
        size_t count = 0;
        for (; seen_ < plans.size(); seen_++) {
            count += plans[seen_].contributions.size();
        }
        return count;
    }

    std::vector<BatchPlan>                 plans;
    std::vector<AdapterUse>                adapters_in_use;
    bool                                   trims       = true;    // false: like a recurrent model
    bool                                   saved_trims = true;    // false: like a sliding window
    std::map<uint32_t, size_t>             gone_before;           // sequences cannot be cut below this
    bool                                   restores_fail = false; // as if memory were short
    mutable size_t                         saves         = 0;
    size_t                                 restores      = 0;
    std::map<uint32_t, std::vector<Token>> sequences;

  private:
    Next                            next_;
    size_t                          context_;
    std::vector<std::vector<float>> logits_;
    size_t                          seen_ = 0;
};

} // namespace headrace
