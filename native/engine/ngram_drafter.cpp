// The index behind ngram_drafter.h.
#include "engine/ngram_drafter.h"

#include <algorithm>

namespace headrace {

static constexpr size_t FIRST_SLOTS = 1024; // a power of two, as all sizes

NgramDrafter::NgramDrafter(size_t history) : history_(std::max(history, LONGEST)) {
    rebuild(FIRST_SLOTS);
}

void NgramDrafter::append(Token token) {
    if (tokens_.size() >= 2 * history_) {
        tokens_.erase(tokens_.begin(), tokens_.end() - static_cast<std::ptrdiff_t>(history_));
        rebuild(latest_[0].size());
    } else if (2 * tokens_.size() >= latest_[0].size()) {
        rebuild(2 * latest_[0].size());
    }
    tokens_.push_back(token);
    index_last();
}

std::span<const Token> NgramDrafter::draft(size_t count) const {
    for (size_t i = LENGTHS; i-- > 0;) {
        if (match_[i] > 0) {
            return std::span(tokens_).subspan(match_[i], std::min(count, tokens_.size() - match_[i]));
        }
    }
    return {};
}

// Notes where the n-grams that end with the last token ended before, and that they now end here.
void NgramDrafter::index_last() {
    const size_t end = tokens_.size();
    for (size_t length = SHORTEST; length <= LONGEST; length++) {
        size_t & match = match_[length - SHORTEST];
        match          = 0;
        if (end >= length) {
            uint32_t & latest = latest_[length - SHORTEST][find_slot(length, end)];
            match             = latest > 0 && same(length, end, latest) ? latest : 0;
            latest            = static_cast<uint32_t>(end);
        }
    }
}

void NgramDrafter::rebuild(size_t slots) {
    for (std::vector<uint32_t> & latest : latest_) {
        latest.assign(slots, 0);
    }
    std::vector<Token> tokens;
    tokens.reserve(tokens_.size() + 1);
    tokens.swap(tokens_);
    for (Token token : tokens) {
        tokens_.push_back(token);
        index_last();
    }
}

size_t NgramDrafter::find_slot(size_t length, size_t end) const {
    uint64_t hash = length;
    for (size_t i = end - length; i < end; i++) {
        hash = (hash ^ static_cast<uint32_t>(tokens_[i])) * 0x9E3779B97F4A7C15ull;
        hash ^= hash >> 32;
    }
    return static_cast<size_t>(hash & (latest_[0].size() - 1));
}

bool NgramDrafter::same(size_t length, size_t end, size_t other_end) const {
    const auto at = [&](size_t position) { return tokens_.begin() + static_cast<std::ptrdiff_t>(position); };
    return std::equal(at(end - length), at(end), at(other_end - length));
}

} // namespace headrace
