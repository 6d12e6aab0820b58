// What each sequence of the KV cache holds, who may use it, and what a new request can continue from.
//
// Sequences of finished requests stay resident until somebody needs the place: first those without a
// context key, then the least recently used. A prompt continues from the longest beginning it shares with
// its own sequence (live), or with a snapshot in the prefix store (prefix, disk), whoever left it there.
// Counterparts: decoder.h, which has the cache itself; prefix_store.h, which has the snapshots. Decides
// nothing about when a request runs: scheduler.cpp does.
#pragma once

#include "engine/decoder.h"
#include "engine/event.h"
#include "engine/request.h"

#include <optional>
#include <string>
#include <vector>

namespace headrace {

class PrefixStore;

class KvCache {
  public:
    // The right to use a sequence, until it is released. A lease that outlives its sequence's next one is
    // refused: the generation tells.
    struct Lease {
        size_t   sequence   = 0;
        uint64_t generation = 0;
        CacheUse reused;
        size_t checkpoint = 0; // a position before the prompt's end where a snapshot is worth a stop; 0: none
    };

    // Decoder and store outlive the cache.
    KvCache(Decoder & decoder, PrefixStore & store, size_t sequences);

    // Whether a request with this context key has a lease. Never true of the empty key.
    bool in_flight(const std::string & context_key) const;

    // How much of the beginning of its prompt a request could have now without computing.
    size_t available(const Request & request) const;

    // Whether the store would keep this sequence's state once it holds so many tokens of its prompt.
    bool would_keep(const Lease & lease, std::span<const Token> tokens) const;

    // A sequence for this request, holding as much of the beginning of its prompt as can be had without
    // computing, but never all of it: the last token's logits are wanted. None when all are leased.
    std::optional<Lease> acquire(const Request & request);

    // The decoder has computed this token at the sequence's end.
    void append(const Lease & lease, Token token);

    // Cuts off what was computed in vain.
    void trim(const Lease & lease, size_t length);

    // Takes tokens out of the middle, see Decoder::shift. The rest is no longer the state of its tokens:
    // other requests continue from the part before the gap only.
    void shift(const Lease & lease, size_t keep, size_t count);

    // Offers the state of the sequence as it is to the prefix store.
    void save(const Lease & lease);

    // Ends the lease. keep: whether what the sequence holds is sound.
    void release(const Lease & lease, bool keep);

    // Forgets every sequence and lease; used when the engine has failed.
    void abandon();

  private:
    struct Sequence {
        std::vector<Token> tokens;    // in the KV cache
        size_t             sound = 0; // of these, how many are the state that the tokens stand for
        std::string        key;
        std::string        adapters_id;
        uint64_t           used       = 0; // when it was released, on the cache's own clock of leases
        uint64_t           generation = 0;
        bool               leased     = false;
    };

    Sequence & held(const Lease & lease);
    size_t     shared(const Sequence & sequence, const Request & request) const;
    size_t     reusable(size_t index, const Request & request) const;
    size_t     choose(const Request & request) const;
    void       make_room(size_t index, const Request & request);
    CacheUse   fill(size_t index, const Request & request);
    size_t     find_checkpoint(const Request & request, size_t reused);
    void       offer(size_t index);

    Decoder &             decoder_;
    PrefixStore &         store_;
    std::vector<Sequence> sequences_;
    uint64_t              leases_ = 0;
};

} // namespace headrace
