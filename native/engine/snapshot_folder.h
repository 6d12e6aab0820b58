// The folder of snapshot files: finds them, writes them, and keeps them within their bytes.
//
// Several models, and several engines at once, may share one folder: what lies there is listed anew
// before each write. Only files named <32 hexadecimal digits>.hrprefix, and temporary ones of that name,
// are ever counted or deleted. What a snapshot is worth in memory is prefix_store.h's business; here the
// one that was used longest ago goes first.
#pragma once

#include "engine/snapshot_file.h"

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace headrace {

class SnapshotFolder {
  public:
    struct Found {
        std::string  name;
        SnapshotHead head;
    };

    struct Written {
        std::string              name;    // of the new file; empty: it was not written
        std::vector<std::string> removed; // names of files that made room
    };

    // Makes the folder if it is missing, removes what a crash has left, what is damaged, and the oldest
    // files over the limit. An empty path or a limit of 0: the folder is neither read nor written.
    SnapshotFolder(const std::string & folder, uint64_t limit_bytes, std::string fingerprint);

    // The files of this fingerprint, the one used last first. Empties the list.
    std::vector<Found> take_found() { return std::move(found_); }

    // Whether there is a folder, and it has not refused too often.
    bool is_active() const;

    // Never throws for what the file system does: see problem().
    Written write(const SnapshotHead & head, std::span<const uint8_t> state);

    // Deletes the file if it is invalid.
    SnapshotResult<std::vector<uint8_t>> read(const std::string & name, const SnapshotHead & head);

    // The file was used: others are to be evicted first.
    void touch(const std::string & name) const;

    uint64_t            bytes() const { return bytes_; } // of all snapshots in the folder, as last listed
    size_t              rejected() const { return rejected_; } // files deleted because they were invalid
    size_t              evicted() const { return evicted_; }   // files deleted to make room
    const std::string & problem() const { return problem_; }   // why the last write failed; empty: none has

  private:
    struct Listed;

    enum class Leftovers { keep, remove };

    std::vector<Listed> list(Leftovers leftovers);
    void                scan();
    bool                remove(const std::string & name) const;
    void                fail(const std::string & problem);

    std::filesystem::path folder_;
    uint64_t              limit_bytes_;
    std::string           fingerprint_;
    std::vector<Found>    found_;
    uint64_t              bytes_    = 0;
    size_t                rejected_ = 0;
    size_t                evicted_  = 0;
    size_t                failures_ = 0; // in a row
    std::string           problem_;
};

} // namespace headrace
