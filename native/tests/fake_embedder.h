// A TokenEmbedder for host tests: a token's vector is {token, position, 1}, and every pass is kept.
//
// Counterpart of engine/llama_embedder.h. Throws where a real one would go wrong unseen: a position that does
// not follow the one before it in its sequence.
#pragma once

#include "engine/embedding.h"

#include <limits>
#include <map>

namespace headrace {

constexpr Token FAKE_NAN     = -1; // has a vector that is no number
constexpr Token FAKE_FAILURE = -2; // makes the pass fail
constexpr Token FAKE_ABORT   = -3; // makes the engine give up

class FakeEmbedder : public TokenEmbedder {
  public:
    void run(const EmbedPass & pass) override {
        passes.push_back(pass);
        if (pass.fresh) {
            lengths_.clear();
        }
        vectors_.clear();
        for (const EmbedPass::Entry & entry : pass.entries) {
            if (entry.token == FAKE_FAILURE || entry.token == FAKE_ABORT) {
                throw Error(entry.token == FAKE_ABORT ? ErrorCode::engine_aborted : ErrorCode::out_of_memory,
                            "no");
            }
            if (entry.position != lengths_[entry.sequence]++) {
                throw Error(ErrorCode::internal, "a position was skipped or repeated");
            }
            const auto token = static_cast<float>(entry.token);
            vectors_.push_back({entry.token == FAKE_NAN ? std::numeric_limits<float>::quiet_NaN() : token,
                                static_cast<float>(entry.position), entry.token == 0 ? 0.0f : 1.0f});
        }
    }

    std::span<const float> vector(size_t entry) override { return vectors_.at(entry); }

    void reset() override { resets++; }

    std::vector<EmbedPass> passes;
    int                    resets = 0;

  private:
    std::vector<std::vector<float>> vectors_;
    std::map<int32_t, int32_t>      lengths_; // of the sequences so far
};

} // namespace headrace
