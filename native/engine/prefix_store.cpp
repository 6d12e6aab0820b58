// See prefix_store.h.
#include "engine/prefix_store.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace headrace {

// What an entry takes beside its state and tokens, roughly.
static constexpr size_t ENTRY_OVERHEAD = 256;

static constexpr double AGE_SCALE_MS = 5 * 60'000.0;

// Nodes looked at, at most, for a better one among snapshots that cover the same tokens.
static constexpr size_t MAX_PICK = 256;

PrefixStore::PrefixStore(PrefixStoreSettings settings, std::function<double()> clock)
    : settings_(std::move(settings)), clock_(std::move(clock)),
      folder_(settings_.memory_bytes > 0 ? settings_.folder : "", settings_.disk_bytes,
              settings_.fingerprint) {
    for (SnapshotFolder::Found & found : folder_.take_found()) {
        if (found.head.state_bytes > settings_.memory_bytes ||
            memory_cost(found.head.tokens.size(), static_cast<size_t>(found.head.state_bytes)) >
                settings_.memory_bytes) {
            continue; // of a session that was allowed more; this one could not take it
        }
        const auto tree = trees_.find(found.head.context);
        if (tree == trees_.end() || tree->second.find(found.head.tokens) == nullptr) {
            Entry & entry =
                add(found.head.context, found.head.tokens, static_cast<size_t>(found.head.state_bytes));
            entry.file = found.name;
        }
    }
}

// --- what is there -------------------------------------------------------------------------------

std::optional<PrefixMatch> PrefixStore::find(std::string_view context, std::span<const Token> tokens,
                                             Bounds bounds) {
    const TokenTree::Node * node   = nullptr;
    size_t                  shared = 0;
    if (const auto tree = trees_.find(context); tree != trees_.end()) {
        const TokenTree::Walk walk = tree->second.walk(tokens.first(std::min(tokens.size(), bounds.at_most)));
        if (settings_.trimmable) {
            node   = pick(walk.below);
            shared = walk.shared;
        } else if (walk.whole != nullptr) {
            node   = walk.whole;
            shared = walk.whole->depth;
        }
    }
    if (node == nullptr || shared < bounds.at_least) {
        counts_.misses++;
        return std::nullopt;
    }
    return PrefixMatch{node->entry, shared, node->depth, entries_.at(node->entry).state == nullptr};
}

size_t PrefixStore::covered(std::string_view context, std::span<const Token> tokens) const {
    const auto tree = trees_.find(context);
    if (tree == trees_.end()) {
        return 0;
    }
    const TokenTree::Walk walk = tree->second.walk(tokens);
    return settings_.trimmable ? walk.shared : walk.whole ? walk.whole->depth : 0;
}

size_t PrefixStore::shared(std::string_view context, std::span<const Token> tokens) const {
    const auto tree = trees_.find(context);
    return tree == trees_.end() ? 0 : tree->second.walk(tokens).shared;
}

// One in memory if possible, and of those the shortest: the cheapest to restore.
const TokenTree::Node * PrefixStore::pick(const TokenTree::Node * below) const {
    const TokenTree::Node *              best = nullptr;
    std::pair<bool, size_t>              best_cost;
    std::vector<const TokenTree::Node *> open;
    if (below != nullptr) {
        open.push_back(below);
    }
    for (size_t seen = 0; !open.empty() && (best == nullptr || seen < MAX_PICK); seen++) {
        const TokenTree::Node * node = open.back();
        open.pop_back();
        bool on_disk = true;
        if (node->entry != 0) {
            on_disk                            = entries_.at(node->entry).state == nullptr;
            const std::pair<bool, size_t> cost = {on_disk, node->depth};
            if (best == nullptr || cost < best_cost) {
                best      = node;
                best_cost = cost;
            }
        }
        if (on_disk) { // else what is below only costs more
            for (const auto & [token, child] : node->children) {
                open.push_back(child.get());
            }
        }
    }
    return best;
}

PrefixState PrefixStore::take(const PrefixMatch & match) {
    const auto  found   = entries_.find(match.entry);
    const bool  on_disk = found != entries_.end() && found->second.state == nullptr;
    PrefixState state;
    if (found != entries_.end()) {
        state = on_disk ? load(found->second) : found->second.state;
    }
    if (state == nullptr) {
        counts_.misses++;
        return nullptr;
    }
    Entry & entry = found->second;
    entry.hits++;
    entry.used = clock_();
    if (!entry.file.empty()) {
        folder_.touch(entry.file);
    }
    counts_.hits++;
    counts_.disk_hits += on_disk ? 1 : 0;
    return state;
}

void PrefixStore::reject(const PrefixMatch & match) {
    if (const auto found = entries_.find(match.entry); found != entries_.end()) {
        forget(found->second);
    }
}

// Reads the state from its file into memory. Null: the entry is gone.
PrefixState PrefixStore::load(Entry & entry) {
    make_room(memory_cost(entry), entry.id);
    auto   result = folder_.read(entry.file, head_of(entry));
    auto * state  = std::get_if<std::vector<uint8_t>>(&result);
    if (state == nullptr) {
        forget(entry);
        return nullptr;
    }
    hold(entry, std::make_shared<const std::vector<uint8_t>>(std::move(*state)));
    return entry.state;
}

bool PrefixStore::wants(std::string_view context, std::span<const Token> tokens, size_t state_bytes) const {
    if (tokens.empty() || state_bytes == 0 ||
        memory_cost(tokens.size(), state_bytes) > settings_.memory_bytes) {
        return false;
    }
    const auto tree = trees_.find(context);
    if (tree == trees_.end()) {
        return true;
    }
    if (settings_.trimmable) {
        return tree->second.walk(tokens).shared < tokens.size();
    }
    return tree->second.find(tokens) == nullptr;
}

// --- what comes and goes -------------------------------------------------------------------------

void PrefixStore::insert(std::string_view context, std::span<const Token> tokens,
                         std::vector<uint8_t> bytes) {
    const size_t cost = memory_cost(tokens.size(), bytes.size());
    if (tokens.empty() || bytes.empty() || cost > settings_.memory_bytes) {
        return;
    }
    bytes.shrink_to_fit(); // what is counted is the size
    Entry *    entry = nullptr;
    const auto tree  = trees_.find(context);
    if (const TokenTree::Node * node = tree != trees_.end() ? tree->second.find(tokens) : nullptr) {
        entry = &entries_.at(node->entry);
        if (entry->state != nullptr || entry->state_bytes != bytes.size()) {
            return; // a state is there; if its file has it in another size, it serves as well
        }
    }
    PrefixState state = std::make_shared<const std::vector<uint8_t>>(std::move(bytes));
    make_room(cost, entry != nullptr ? entry->id : 0); // before add(): it changes the tree
    if (entry == nullptr) {
        entry          = &add(context, tokens, state->size());
        entry->unsaved = true;
    }
    hold(*entry, std::move(state));
}

// All or nothing, if memory runs out.
PrefixStore::Entry & PrefixStore::add(std::string_view context, std::span<const Token> tokens,
                                      size_t state_bytes) {
    const uint64_t            id = next_id_++;
    std::map<uint64_t, Entry> added;
    Entry &                   entry = added[id];
    entry.id                        = id;
    entry.context                   = context;
    entry.state_bytes               = state_bytes;
    entry.used                      = clock_();
    entry.node                      = trees_.try_emplace(entry.context).first->second.insert(tokens, id);
    entries_.merge(added);
    return entry;
}

void PrefixStore::hold(Entry & entry, PrefixState state) {
    entry.state = std::move(state);
    memory_ += memory_cost(entry);
}

void PrefixStore::drop_state(Entry & entry) {
    if (entry.state != nullptr) {
        memory_ -= memory_cost(entry);
        entry.state   = nullptr;
        entry.unsaved = false;
    }
}

void PrefixStore::forget(Entry & entry) {
    drop_state(entry);
    const auto tree = trees_.find(entry.context);
    tree->second.erase(entry.node);
    if (tree->second.empty()) {
        trees_.erase(tree);
    }
    entries_.erase(entry.id);
}

size_t PrefixStore::memory_cost(size_t tokens, size_t state_bytes) const {
    const size_t around = ENTRY_OVERHEAD + tokens * sizeof(Token);
    return state_bytes > std::numeric_limits<size_t>::max() - around ? std::numeric_limits<size_t>::max()
                                                                     : state_bytes + around;
}

size_t PrefixStore::memory_cost(const Entry & entry) const {
    return memory_cost(entry.node->depth, entry.state_bytes);
}

double PrefixStore::value(const Entry & entry, double now) const {
    const TokenTree::Node & node  = *entry.node;
    double                  saved = static_cast<double>(node.edge.size());
    if (!settings_.trimmable) {
        const TokenTree::Node * prefix = TokenTree::prefix_of(&node);
        saved = static_cast<double>(node.depth - (prefix != nullptr ? prefix->depth : 0));
    } else if (!node.children.empty()) {
        saved = 1;
    }
    const double likely = (1 + static_cast<double>(entry.hits)) / (1 + (now - entry.used) / AGE_SCALE_MS);
    return likely * saved / static_cast<double>(memory_cost(entry));
}

// Evicts until so many bytes are free; bytes: at most the whole memory allowed.
void PrefixStore::make_room(size_t bytes, uint64_t keep) {
    const double now = clock_();
    while (memory_ > settings_.memory_bytes - bytes) {
        Entry * worst       = nullptr;
        double  worst_value = 0;
        for (auto & [id, entry] : entries_) {
            if (entry.state == nullptr || id == keep) {
                continue;
            }
            const double its_value = value(entry, now); // depends on what else is there: asked anew each time
            if (worst == nullptr || its_value < worst_value) {
                worst       = &entry;
                worst_value = its_value;
            }
        }
        counts_.evictions++;
        if (worst->file.empty()) {
            forget(*worst);
        } else {
            drop_state(*worst);
        }
    }
}

// --- the folder ----------------------------------------------------------------------------------

SnapshotHead PrefixStore::head_of(const Entry & entry) const {
    return {settings_.fingerprint, entry.context, TokenTree::path(entry.node), entry.state_bytes};
}

// One that a longer one covers is not worth its place on the disk.
bool PrefixStore::is_pending(const Entry & entry) const {
    return entry.unsaved && folder_.is_active() && !(settings_.trimmable && !entry.node->children.empty());
}

bool PrefixStore::persist_one() {
    const auto pending = [this](const auto & item) { return is_pending(item.second); };
    const auto next    = std::find_if(entries_.begin(), entries_.end(), pending);
    if (next == entries_.end()) {
        return false;
    }
    Entry & entry                         = next->second;
    entry.unsaved                         = false;
    const SnapshotFolder::Written written = folder_.write(head_of(entry), *entry.state);
    entry.file                            = written.name;
    for (auto at = entries_.begin(); at != entries_.end();) {
        Entry & other = (at++)->second;
        if (std::find(written.removed.begin(), written.removed.end(), other.file) == written.removed.end()) {
            continue;
        }
        other.file.clear();
        if (other.state == nullptr) {
            forget(other);
        }
    }
    return std::any_of(entries_.begin(), entries_.end(), pending);
}

PrefixStoreStats PrefixStore::stats() const {
    PrefixStoreStats stats = counts_;
    stats.entries          = entries_.size();
    stats.memory_bytes     = memory_;
    for (const auto & [id, entry] : entries_) {
        stats.memory_entries += entry.state != nullptr ? 1 : 0;
        stats.disk_entries += entry.file.empty() ? 0 : 1;
    }
    stats.disk_bytes     = folder_.bytes();
    stats.disk_evictions = folder_.evicted();
    stats.rejected_files = folder_.rejected();
    stats.disk_problem   = folder_.problem();
    return stats;
}

} // namespace headrace
