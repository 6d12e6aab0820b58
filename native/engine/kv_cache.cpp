// The bookkeeping behind kv_cache.h.
#include "engine/kv_cache.h"

#include "engine/error.h"
#include "engine/prefix_store.h"

#include <algorithm>
#include <tuple>

namespace headrace {

namespace {

// Computing fewer tokens than this costs about as much as copying a state would.
constexpr size_t WORTH_COPYING = 16;

// Fewer tokens than this are not worth a snapshot's place.
constexpr size_t WORTH_KEEPING = 32;

} // namespace

KvCache::KvCache(Decoder & decoder, PrefixStore & store, size_t sequences)
    : decoder_(decoder), store_(store), sequences_(sequences) {}

size_t KvCache::available(const Request & request) const {
    const std::span<const Token> prompt(request.prompt.data(), request.prompt.size() - 1);
    size_t                       tokens = store_.covered(request.adapters_id, prompt);
    for (size_t i = 0; i < sequences_.size(); i++) {
        if (!sequences_[i].leased) {
            tokens = std::max(tokens, reusable(i, request));
        }
    }
    return tokens;
}

bool KvCache::would_keep(const Lease & lease, std::span<const Token> tokens) const {
    const size_t held  = std::max<size_t>(sequences_.at(lease.sequence).tokens.size(), 1);
    const size_t bytes = std::max<size_t>(decoder_.state_bytes(lease.sequence), 1);
    // As if it grew with its tokens; where it does not, it is smaller.
    const double grown =
        static_cast<double>(bytes) * static_cast<double>(tokens.size()) / static_cast<double>(held);
    return store_.wants(sequences_[lease.sequence].adapters_id, tokens,
                        static_cast<size_t>(std::min(grown, static_cast<double>(SIZE_MAX / 2))));
}

bool KvCache::in_flight(const std::string & context_key) const {
    return !context_key.empty() && std::any_of(sequences_.begin(), sequences_.end(), [&](const Sequence & s) {
        return s.leased && s.key == context_key;
    });
}

KvCache::Sequence & KvCache::held(const Lease & lease) {
    Sequence & sequence = sequences_.at(lease.sequence);
    if (!sequence.leased || sequence.generation != lease.generation) {
        throw Error(ErrorCode::internal, "a lease on the KV cache was used after its end");
    }
    return sequence;
}

// Tokens of the prompt, but for its last, that the sequence begins with.
size_t KvCache::shared(const Sequence & sequence, const Request & request) const {
    if (sequence.adapters_id != request.adapters_id) {
        return 0;
    }
    const std::span<const Token> prompt(request.prompt.data(), request.prompt.size() - 1);
    return common_beginning({sequence.tokens.data(), sequence.sound}, prompt);
}

// Of these, what the request can continue from in place.
size_t KvCache::reusable(size_t index, const Request & request) const {
    const Sequence & sequence = sequences_[index];
    const size_t     tokens   = shared(sequence, request);
    return tokens == sequence.tokens.size() || decoder_.can_trim_to(index, tokens) ? tokens : 0;
}

// The sequence to use, of those that are free: its own; one that nobody owns and that has much of the
// prompt; an empty one; the one that is missed least.
size_t KvCache::choose(const Request & request) const {
    const std::string & key  = request.options.context_key;
    const auto          rank = [&](size_t index) {
        const Sequence & sequence = sequences_[index];
        const size_t     reuse    = reusable(index, request);
        const bool       own      = !key.empty() && sequence.key == key;
        const bool       nobodys  = sequence.key.empty();
        const bool       fits     = nobodys && reuse >= WORTH_COPYING;
        const int        kind     = own ? 0 : fits ? 1 : sequence.tokens.empty() ? 2 : nobodys ? 3 : 4;
        return std::tuple(kind, fits ? sequence.tokens.size() - reuse : 0, sequence.used);
    };
    size_t best = sequences_.size();
    for (size_t i = 0; i < sequences_.size(); i++) {
        const bool free = !sequences_[i].leased;
        if (free && (best == sequences_.size() || rank(i) < rank(best))) {
            best = i;
        }
    }
    return best;
}

std::optional<KvCache::Lease> KvCache::acquire(const Request & request) {
    const size_t index = choose(request);
    if (index == sequences_.size()) {
        return std::nullopt;
    }
    Sequence & sequence   = sequences_[index];
    sequence.leased       = true;
    sequence.generation   = ++leases_;
    const CacheUse reused = fill(index, request);
    sequence.key          = request.options.context_key;
    sequence.adapters_id  = request.adapters_id;
    const size_t stop     = find_checkpoint(request, reused.tokens);
    return Lease{index, sequence.generation, reused, stop};
}

CacheUse KvCache::fill(size_t index, const Request & request) {
    Sequence &                 sequence = sequences_[index];
    const size_t               live     = reusable(index, request);
    const PrefixStore::Bounds  bounds   = {live + WORTH_COPYING, request.prompt.size() - 1};
    std::optional<PrefixMatch> match;
    if (bounds.at_least <= bounds.at_most) {
        match = store_.find(request.adapters_id, request.prompt, bounds);
    }
    // A long file is not read for a few tokens.
    if (match && match->on_disk && match->tokens - live < match->length / WORTH_COPYING) {
        match.reset();
    }
    if (sequence.tokens.size() - (match ? 0 : live) >= WORTH_KEEPING) {
        offer(index);
    }
    if (match) {
        const PrefixState state = store_.take(*match);
        if (state && decoder_.restore(index, *state)) {
            decoder_.trim(index, match->tokens);
            const auto begin = request.prompt.begin();
            sequence.tokens.assign(begin, begin + static_cast<ptrdiff_t>(match->tokens));
            sequence.sound = match->tokens;
            return {match->on_disk ? CacheSource::disk : CacheSource::prefix, match->tokens};
        }
        if (state) { // and the sequence is empty now
            sequence.tokens.clear();
            store_.reject(*match);
        }
    }
    const size_t kept = std::min(live, sequence.tokens.size());
    decoder_.trim(index, kept);
    sequence.tokens.resize(kept);
    sequence.sound = kept;
    return {kept > 0 ? CacheSource::live : CacheSource::none, kept};
}

// Where a saved state cannot be trimmed, a snapshot serves only prompts that go on from just there. So one is
// taken where this prompt parts from one that was seen before: what they share others may share too.
size_t KvCache::find_checkpoint(const Request & request, size_t reused) {
    if (decoder_.can_trim_saved()) {
        return 0;
    }
    const size_t at_most = request.prompt.size() - 1;
    size_t       parting = store_.shared(request.adapters_id, request.prompt);
    for (const Sequence & sequence : sequences_) {
        parting = std::max(parting, sequence.tokens.size() == reused ? 0 : shared(sequence, request));
    }
    return parting >= std::max(reused + WORTH_COPYING, WORTH_KEEPING) && parting < at_most ? parting : 0;
}

void KvCache::append(const Lease & lease, Token token) {
    Sequence & sequence = held(lease);
    sequence.sound += sequence.sound == sequence.tokens.size() ? 1 : 0;
    sequence.tokens.push_back(token);
}

void KvCache::trim(const Lease & lease, size_t length) {
    Sequence & sequence = held(lease);
    if (length >= sequence.tokens.size()) {
        return;
    }
    decoder_.trim(lease.sequence, length);
    sequence.tokens.resize(length);
    sequence.sound = std::min(sequence.sound, length);
}

void KvCache::shift(const Lease & lease, size_t keep, size_t count) {
    Sequence & sequence = held(lease);
    decoder_.shift(lease.sequence, keep, count);
    const auto gap = sequence.tokens.begin() + static_cast<ptrdiff_t>(keep);
    sequence.tokens.erase(gap, gap + static_cast<ptrdiff_t>(count));
    sequence.sound = std::min(sequence.sound, keep);
}

void KvCache::save(const Lease & lease) {
    held(lease);
    offer(lease.sequence);
}

void KvCache::offer(size_t index) {
    const Sequence & sequence = sequences_[index];
    if (sequence.sound < sequence.tokens.size()) {
        return;
    }
    const size_t covered = store_.covered(sequence.adapters_id, sequence.tokens);
    if (sequence.tokens.size() < covered + WORTH_KEEPING) {
        return;
    }
    try {
        if (store_.wants(sequence.adapters_id, sequence.tokens, decoder_.state_bytes(index))) {
            store_.insert(sequence.adapters_id, sequence.tokens, decoder_.save(index));
        }
    } catch (const std::bad_alloc &) {
        // A snapshot less: it would have saved time, and is not worth a failure.
    }
}

void KvCache::release(const Lease & lease, bool keep) {
    Sequence & sequence = held(lease);
    sequence.leased     = false;
    sequence.used       = ++leases_;
    if (!keep) {
        decoder_.trim(lease.sequence, 0);
        sequence.tokens.clear();
        sequence.sound = 0;
    }
    if (sequence.tokens.empty()) {
        sequence.key.clear();
    }
}

void KvCache::abandon() {
    for (Sequence & sequence : sequences_) {
        sequence            = Sequence{};
        sequence.generation = ++leases_;
    }
}

} // namespace headrace
