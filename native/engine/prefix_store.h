// Snapshots of KV-cache states of token prefixes, shared by all requests: a common system prompt is computed
// once. In memory within a number of bytes; with a folder, also across sessions.
//
// A pure data structure: the scheduler takes and restores the states, snapshot_folder.h keeps the files,
// token_tree.h finds the prefixes. Not thread-safe.
//
// What stays in memory. When bytes are needed, the snapshot with the lowest value goes:
//
//   value = (1 + hits) / (1 + minutes since the last use / 5) * tokens saved / bytes
//
// that is, the prefill it is likely to save per byte it takes: what was used often and lately is likely to be
// used again, and a state of fixed size (recurrent models) is worth more the longer its path. "Tokens saved"
// are those that no other snapshot would save: for states that can be trimmed, the tokens past the last
// branch, else those past the longest other snapshot on the same path. A snapshot that is wholly covered by a
// longer one that can be trimmed saves no prefill, only a larger copy: it counts as one token.
#pragma once

#include "engine/request.h"
#include "engine/snapshot_folder.h"
#include "engine/token_tree.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

struct PrefixStoreSettings {
    size_t      memory_bytes = 0;  // for states and their tokens; 0: nothing is stored
    uint64_t    disk_bytes   = 0;  // for all files in the folder, other models' too; 0: no files
    std::string folder;            // made if missing; empty: memory only
    std::string fingerprint;       // of model and settings, see fingerprint.h; files of others are not used
    bool        trimmable = false; // a state serves any beginning of its tokens (not recurrent, not windowed)
};

struct PrefixMatch {
    uint64_t entry   = 0;
    size_t   tokens  = 0; // how many of the prompt's first tokens it covers
    size_t   length  = 0; // tokens in the state itself: more than that where it must be trimmed
    bool     on_disk = false;
};

struct PrefixStoreStats {
    size_t      entries        = 0; // in memory or on disk
    size_t      memory_entries = 0;
    size_t      memory_bytes   = 0;
    size_t      disk_entries   = 0; // of this fingerprint
    uint64_t    disk_bytes     = 0; // of all files in the folder, as last listed
    size_t      hits           = 0; // states given out
    size_t      disk_hits      = 0; // of those, read from a file
    size_t      misses         = 0; // nothing found, or gone or damaged when it was taken
    size_t      evictions      = 0; // states dropped from memory
    size_t      disk_evictions = 0; // files deleted to make room
    size_t      rejected_files = 0; // files deleted because they were damaged or of another version
    std::string disk_problem;       // why the last write failed; empty: it did not
};

using PrefixState = std::shared_ptr<const std::vector<uint8_t>>;

class PrefixStore {
  public:
    // clock: milliseconds, from any beginning, never going back. Reads heads and tokens of the folder's files.
    PrefixStore(PrefixStoreSettings settings, std::function<double()> clock);

    struct Bounds {
        size_t at_least = 1; // tokens: what covers fewer is no match
        size_t at_most  = 0; // tokens that may be covered: a prompt's last one must be computed
    };

    // The match that covers most of these tokens. `context` tells apart what must not mix (a request's LoRA
    // adapters, …). A miss is counted: ask once per request.
    std::optional<PrefixMatch> find(std::string_view context, std::span<const Token> tokens, Bounds bounds);

    // How many of these tokens a find() would give, and how many of them some stored path begins with,
    // whether or not its state can be used. Neither counts as a miss.
    size_t covered(std::string_view context, std::span<const Token> tokens) const;
    size_t shared(std::string_view context, std::span<const Token> tokens) const;

    // The state, and counts the hit; null if it has been evicted since, or its file is damaged, which is then
    // deleted. What is given out stays valid, and is no longer the store's to count once it is evicted.
    PrefixState take(const PrefixMatch & match);

    // Forgets a state that the model could not restore, so that a new one can take its place. Its file stays.
    void reject(const PrefixMatch & match);

    // Whether a state of so many bytes for exactly these tokens would add something. False if there is one
    // already, or a longer one that can be trimmed to it. To be asked before the state is copied.
    bool wants(std::string_view context, std::span<const Token> tokens, size_t state_bytes) const;

    // Takes the state in and evicts what it must; ignores one that is larger than all the memory allowed,
    // or already there.
    void insert(std::string_view context, std::span<const Token> tokens, std::vector<uint8_t> bytes);

    // Writes at most one snapshot to the folder, the oldest first, and returns whether more are pending. For
    // idle times: blocks as long as the disk does. Each snapshot is tried once.
    bool persist_one();

    PrefixStoreStats stats() const;

  private:
    struct Entry {
        uint64_t          id = 0;
        std::string       context;
        TokenTree::Node * node = nullptr;
        PrefixState       state; // null: only on disk
        size_t            state_bytes = 0;
        std::string       file;            // empty: only in memory
        bool              unsaved = false; // not yet tried to write
        size_t            hits    = 0;
        double            used    = 0;
    };

    Entry &                 add(std::string_view context, std::span<const Token> tokens, size_t state_bytes);
    size_t                  memory_cost(size_t tokens, size_t state_bytes) const;
    size_t                  memory_cost(const Entry & entry) const;
    double                  value(const Entry & entry, double now) const;
    void                    make_room(size_t bytes, uint64_t keep);
    void                    hold(Entry & entry, PrefixState state);
    void                    drop_state(Entry & entry);
    void                    forget(Entry & entry);
    PrefixState             load(Entry & entry);
    bool                    is_pending(const Entry & entry) const;
    SnapshotHead            head_of(const Entry & entry) const;
    const TokenTree::Node * pick(const TokenTree::Node * below) const;

    PrefixStoreSettings                           settings_;
    std::function<double()>                       clock_;
    SnapshotFolder                                folder_;
    std::map<std::string, TokenTree, std::less<>> trees_; // by context
    std::map<uint64_t, Entry>                     entries_;
    uint64_t                                      next_id_ = 1;
    size_t                                        memory_  = 0; // bytes
    PrefixStoreStats                              counts_;      // only what is counted as it happens
};

} // namespace headrace
