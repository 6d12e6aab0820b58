// The small model's passes behind model_drafter.h.
#include "engine/model_drafter.h"

#include "engine/error.h"

#include <algorithm>

namespace headrace {

// Tokens of a prompt that the small model computes in one step: the streams beside it wait as long.
constexpr size_t CATCH_UP = 32;

static LoadOptions for_drafting(LoadOptions options) {
    options.speculation   = "none";
    options.sliding_cache = false;
    return options;
}

static void check_vocabulary(const Model & small, const Model & large) {
    bool same = small.size() == large.size();
    for (Token token = 0; same && static_cast<size_t>(token) < large.size(); token++) {
        same = small.piece(token) == large.piece(token) && small.is_end(token) == large.is_end(token);
    }
    if (!same) {
        throw Error(ErrorCode::model_invalid,
                    "the draft model has another vocabulary (" + std::to_string(small.size()) +
                        " tokens) than the model it drafts for (" + std::to_string(large.size()) + ")");
    }
}

ModelDrafter::ModelDrafter(std::unique_ptr<Model> small, const Model & large, const LoadOptions & options,
                           ggml_threadpool & threads)
    : model_(std::move(small)), decoder_(*model_, for_drafting(options), threads),
      sequences_(static_cast<size_t>(options.slots)), batch_size_(static_cast<size_t>(options.batch_size)) {
    check_vocabulary(*model_, large);
    if (!decoder_.can_trim()) {
        throw Error(ErrorCode::model_invalid, "a recurrent model cannot be a draft model");
    }
}

void ModelDrafter::begin(size_t slot, std::span<const Token> prompt) {
    sequences_.at(slot).tokens.assign(prompt.begin(), prompt.end());
}

// What is held stays: the next prompt may begin alike.
void ModelDrafter::end(size_t slot) {
    sequences_.at(slot).tokens.clear();
}

void ModelDrafter::append(size_t slot, Token token) {
    sequences_.at(slot).tokens.push_back(token);
}

bool ModelDrafter::draft(size_t slot, size_t at_most, std::vector<Token> & guesses) {
    Sequence & sequence = sequences_.at(slot);
    // After a shift the slot's context is shorter than its tokens; the small model has nothing to shift.
    if (sequence.tokens.size() + at_most > decoder_.context_size()) {
        return true;
    }
    const auto ends = std::mismatch(sequence.held.begin(), sequence.held.end(), sequence.tokens.begin(),
                                    sequence.tokens.end() - 1);
    const auto kept = static_cast<size_t>(ends.first - sequence.held.begin());
    decoder_.trim(slot, kept);
    sequence.held.resize(kept);
    const auto behind = std::span<const Token>(sequence.tokens).subspan(kept);
    if (behind.size() > CATCH_UP) {
        compute(slot, behind.first(CATCH_UP));
        return false;
    }
    Token next = compute(slot, behind);
    guesses.push_back(next);
    while (guesses.size() < at_most && !model_->is_end(next)) {
        next = compute(slot, {&next, 1});
        guesses.push_back(next);
    }
    return true;
}

// The likeliest token behind these, which are added to the slot's sequence.
Token ModelDrafter::compute(size_t slot, std::span<const Token> tokens) {
    Sequence & sequence = sequences_.at(slot);
    while (!tokens.empty()) {
        const auto part = tokens.first(std::min(tokens.size(), batch_size_));
        tokens          = tokens.subspan(part.size());
        plan_.contributions.clear();
        for (const Token token : part) {
            plan_.contributions.push_back({ContributionKind::prefill, static_cast<uint32_t>(slot), 0, token,
                                           static_cast<int32_t>(sequence.held.size()), false});
            sequence.held.push_back(token);
        }
        plan_.contributions.back().wants_logits = tokens.empty();
        decoder_.decode(plan_);
    }
    const auto logits = decoder_.logits(plan_.contributions.size() - 1);
    return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

} // namespace headrace
