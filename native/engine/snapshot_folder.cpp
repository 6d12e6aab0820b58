// See snapshot_folder.h.
#include "engine/snapshot_folder.h"

#include "engine/fingerprint.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <system_error>
#include <utility>

namespace headrace {

namespace fs = std::filesystem;

static constexpr std::string_view EXTENSION = ".hrprefix";
static constexpr std::string_view TEMPORARY = ".tmp";
static constexpr size_t           DIGITS    = 32;

// A disk that has refused this often in a row is left alone: each try would write up to a whole snapshot.
static constexpr size_t MAX_FAILURES = 3;

// Of all found files together: 64 MiB. A folder full of snapshots has some kilobytes of state per token.
static constexpr size_t MAX_FOUND_TOKENS = size_t(1) << 24;

struct SnapshotFolder::Listed {
    std::string        name;
    uint64_t           bytes;
    fs::file_time_type used;
};

enum class NameKind { foreign, snapshot, temporary };

static NameKind kind_of(std::string_view name) {
    constexpr std::string_view HEX = "0123456789abcdef";
    if (name.size() < DIGITS + EXTENSION.size() || name.find_first_not_of(HEX) != DIGITS ||
        name.substr(DIGITS, EXTENSION.size()) != EXTENSION) {
        return NameKind::foreign;
    }
    const std::string_view rest = name.substr(DIGITS + EXTENSION.size());
    if (rest.empty()) {
        return NameKind::snapshot;
    }
    return rest.front() == '.' && rest.ends_with(TEMPORARY) ? NameKind::temporary : NameKind::foreign;
}

// The same prefix gets the same name in every session: it is never stored twice.
static std::string name_of(const SnapshotHead & head) {
    std::string tokens;
    for (const Token token : head.tokens) {
        tokens += std::to_string(token) + ",";
    }
    const std::string parts[] = {head.fingerprint, head.context, tokens};
    return combine_fingerprints(parts) + std::string(EXTENSION);
}

SnapshotFolder::SnapshotFolder(const std::string & folder, uint64_t limit_bytes, std::string fingerprint)
    : folder_(limit_bytes > 0 ? folder : ""), limit_bytes_(limit_bytes),
      fingerprint_(std::move(fingerprint)) {
    if (folder_.empty()) {
        return;
    }
    std::error_code error;
    fs::create_directories(folder_, error);
    if (!fs::is_directory(folder_, error)) {
        problem_ = "the folder cannot be made";
        folder_.clear();
        return;
    }
    scan();
}

// Newest first, so that what exceeds the limit is the oldest, and is not even opened. If another engine is
// just writing, it loses its temporary file, and goes on as after any write that fails.
void SnapshotFolder::scan() {
    std::vector<Listed> files = list(Leftovers::remove);
    std::reverse(files.begin(), files.end());
    bytes_        = 0;
    size_t tokens = 0;
    for (const Listed & file : files) {
        if (file.bytes > limit_bytes_ - bytes_) {
            evicted_ += remove(file.name) ? 1 : 0;
            continue;
        }
        SnapshotResult<SnapshotHead> result = read_snapshot_head(folder_ / file.name);
        if (is_invalid(result)) {
            rejected_ += remove(file.name) ? 1 : 0;
            continue;
        }
        bytes_ += file.bytes;
        SnapshotHead * head = std::get_if<SnapshotHead>(&result);
        if (head != nullptr && head->fingerprint == fingerprint_ &&
            head->tokens.size() <= MAX_FOUND_TOKENS - tokens) {
            tokens += head->tokens.size();
            found_.push_back({file.name, std::move(*head)});
        }
    }
}

// Oldest first.
std::vector<SnapshotFolder::Listed> SnapshotFolder::list(Leftovers leftovers) {
    std::vector<Listed> files;
    std::error_code     error;
    bytes_ = 0;
    for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
        const std::string name = at->path().filename().string();
        const NameKind    kind = kind_of(name);
        std::error_code   ignored;
        if (kind == NameKind::foreign || at->symlink_status(ignored).type() != fs::file_type::regular) {
            continue;
        }
        if (kind == NameKind::temporary) {
            if (leftovers == Leftovers::remove) {
                remove(name);
            }
            continue;
        }
        std::error_code gone;
        const uint64_t  bytes = at->file_size(gone);
        const auto      used  = at->last_write_time(ignored);
        if (!gone) {
            files.push_back({name, bytes, used});
            bytes_ += bytes;
        }
    }
    std::sort(files.begin(), files.end(), [](const Listed & a, const Listed & b) {
        return a.used != b.used ? a.used < b.used : a.name < b.name;
    });
    return files;
}

bool SnapshotFolder::is_active() const {
    return !folder_.empty() && failures_ < MAX_FAILURES;
}

SnapshotFolder::Written SnapshotFolder::write(const SnapshotHead & head, std::span<const uint8_t> state) {
    Written written;
    if (!is_active() || !snapshot_can_be_file(head) || snapshot_file_bytes(head) > limit_bytes_) {
        return written;
    }
    const std::string   name  = name_of(head);
    const uint64_t      bytes = snapshot_file_bytes(head);
    std::vector<Listed> files = list(Leftovers::keep);
    std::erase_if(files, [&](const Listed & file) { // another engine's, about to be replaced
        bytes_ -= file.name == name ? file.bytes : 0;
        return file.name == name;
    });
    for (const Listed & file : files) {
        if (bytes_ + bytes > limit_bytes_ && remove(file.name)) {
            bytes_ -= file.bytes;
            evicted_++;
            written.removed.push_back(file.name);
        }
    }
    if (bytes_ + bytes > limit_bytes_) {
        fail("the folder is full, and older files cannot be removed");
        return written;
    }
    const auto        moment    = std::chrono::steady_clock::now().time_since_epoch().count();
    const std::string temporary = name + "." + std::to_string(moment) + std::string(TEMPORARY);
    const std::string problem   = write_snapshot(folder_ / name, folder_ / temporary, head, state);
    if (!problem.empty()) {
        fail(problem);
        return written;
    }
    failures_ = 0;
    problem_.clear();
    bytes_ += bytes;
    touch(name); // the file system's own clock may be too coarse to order files
    written.name = name;
    return written;
}

SnapshotResult<std::vector<uint8_t>> SnapshotFolder::read(const std::string &  name,
                                                          const SnapshotHead & head) {
    SnapshotResult<std::vector<uint8_t>> result = read_snapshot_state(folder_ / name, head);
    if (is_invalid(result) && remove(name)) {
        rejected_++;
        bytes_ -= std::min(bytes_, snapshot_file_bytes(head));
    }
    return result;
}

void SnapshotFolder::touch(const std::string & name) const {
    std::error_code ignored; // not all file systems can, and the order is a matter of taste
    fs::last_write_time(folder_ / name, fs::file_time_type::clock::now(), ignored);
}

bool SnapshotFolder::remove(const std::string & name) const {
    std::error_code error;
    fs::remove(folder_ / name, error);
    return !error;
}

void SnapshotFolder::fail(const std::string & problem) {
    failures_++;
    problem_ = problem;
}

} // namespace headrace
