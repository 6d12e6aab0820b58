// One snapshot of a KV-cache state as a file: its format, how it is written whole or not at all, and how
// nothing in it is believed before it has been checked.
//
// Which files there are, and which must go, is snapshot_folder.h's business.
//
//   offset  bytes  content (all numbers little-endian)
//        0      8  "HRPREFIX"
//        8      4  version of this format
//       12      4  F: bytes of the fingerprint
//       16      4  C: bytes of the context
//       20      4  T: number of tokens
//       24      8  S: bytes of the state
//       32      F  fingerprint of model and settings (fingerprint.h)
//              C  context
//            4*T  tokens
//             16  XXH3-128 of everything above: head and tokens can be trusted without reading the state
//              S  state
//             16  XXH3-128 of everything above
#pragma once

#include "engine/request.h"

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace headrace {

struct SnapshotHead {
    std::string        fingerprint;
    std::string        context;
    std::vector<Token> tokens;
    uint64_t           state_bytes = 0;

    bool operator==(const SnapshotHead &) const = default;
};

// invalid: the file is damaged, truncated or of another version, now and for ever.
// unreadable: it could not be opened or read, or memory ran out, which says nothing about the file.
enum class SnapshotFault { unreadable, invalid };

template <typename T> using SnapshotResult = std::variant<T, SnapshotFault>;

template <typename T> bool is_invalid(const SnapshotResult<T> & result) {
    const SnapshotFault * fault = std::get_if<SnapshotFault>(&result);
    return fault != nullptr && *fault == SnapshotFault::invalid;
}

// What a declared length may be at most: a hostile file must not have gigabytes allocated.
constexpr uint32_t SNAPSHOT_MAX_TEXT   = 1 << 16; // bytes of fingerprint or context
constexpr uint32_t SNAPSHOT_MAX_TOKENS = 1 << 22;

// Whether this can be written as a file at all.
bool snapshot_can_be_file(const SnapshotHead & head);

// The size of the whole file.
uint64_t snapshot_file_bytes(const SnapshotHead & head);

// Reads and checks everything but the state.
SnapshotResult<SnapshotHead> read_snapshot_head(const std::filesystem::path & path);

// Reads and checks everything; `expected` is what the head must say, or the file is invalid.
SnapshotResult<std::vector<uint8_t>> read_snapshot_state(const std::filesystem::path & path,
                                                         const SnapshotHead &          expected);

// Writes to `temporary`, then renames it to `path`. Empty: done; else what went wrong, and neither a
// temporary file nor half a snapshot is left. head.state_bytes must be state.size().
std::string write_snapshot(const std::filesystem::path & path, const std::filesystem::path & temporary,
                           const SnapshotHead & head, std::span<const uint8_t> state);

} // namespace headrace
