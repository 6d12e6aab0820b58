// A snapshot's file is either whole and what was written, or it is refused.
#include "engine/snapshot_file.h"

#include "engine/content_hash.h"
#include "temporary_folder.h"

#include <doctest/doctest.h>

#include <csignal>

#include <sys/resource.h>

using namespace headrace;
namespace fs = std::filesystem;

namespace {

const SnapshotHead         HEAD  = {"fingerprint", "lora:fr", {1, 2, -3, 70000}, 40};
const std::vector<uint8_t> STATE = [] {
    std::vector<uint8_t> bytes(40);
    for (size_t i = 0; i < bytes.size(); i++) {
        bytes[i] = static_cast<uint8_t>(i * 7);
    }
    return bytes;
}();

struct OneFile {
    OneFile() {
        REQUIRE(write_snapshot(path, folder.path / "a.tmp", HEAD, STATE) == "");
        whole = read_bytes(path);
    }

    // What the head alone says, and what the whole file says, of these bytes.
    bool head_invalid(const std::vector<uint8_t> & bytes) const {
        write_bytes(path, bytes);
        return is_invalid(read_snapshot_head(path));
    }
    bool state_invalid(const std::vector<uint8_t> & bytes) const {
        write_bytes(path, bytes);
        return is_invalid(read_snapshot_state(path, HEAD));
    }

    TemporaryFolder      folder;
    fs::path             path = folder.path / "a";
    std::vector<uint8_t> whole;
};

void put(std::vector<uint8_t> & bytes, size_t at, uint64_t number, size_t width) {
    for (size_t i = 0; i < width; i++) {
        bytes.at(at + i) = static_cast<uint8_t>(number >> (8 * i));
    }
}

// Makes the digest after the head right again: what is left to refuse are the lengths themselves.
void sign_head(std::vector<uint8_t> & bytes, size_t head_bytes) {
    ContentHash hash;
    hash.update({bytes.data(), head_bytes});
    const ContentHash::Digest digest = hash.digest();
    std::copy(digest.begin(), digest.end(), bytes.begin() + static_cast<ptrdiff_t>(head_bytes));
}

long peak_kib() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

} // namespace

TEST_CASE("snapshot_file: what was written is read back, and nothing else is left in the folder") {
    const OneFile file;
    CHECK(std::get<SnapshotHead>(read_snapshot_head(file.path)) == HEAD);
    CHECK(std::get<std::vector<uint8_t>>(read_snapshot_state(file.path, HEAD)) == STATE);
    CHECK(file.whole.size() == snapshot_file_bytes(HEAD));
    CHECK(file.folder.names() == std::vector<std::string>{"a"});
}

TEST_CASE("snapshot_file: the layout is the one that the header describes, byte for byte") {
    const OneFile              file;
    const std::vector<uint8_t> start = {'H', 'R', 'P', 'R', 'E', 'F', 'I', 'X', 1, 0, 0, 0, 11, 0, 0, 0,  7,
                                        0,   0,   0,   4,   0,   0,   0,   40,  0, 0, 0, 0, 0,  0, 0, 'f'};
    CHECK(std::vector<uint8_t>(file.whole.begin(), file.whole.begin() + 33) == start);
    const std::vector<uint8_t> third = {0xfd, 0xff, 0xff, 0xff}; // -3
    CHECK(std::vector<uint8_t>(file.whole.begin() + 58, file.whole.begin() + 62) == third);
}

TEST_CASE("snapshot_file: a flipped bit in any byte makes the file invalid, in the head before the state") {
    const OneFile file;
    const size_t  head_bytes = 32 + 11 + 7 + 4 * 4 + 16;
    for (size_t at = 0; at < file.whole.size(); at++) {
        for (const uint8_t bit : {uint8_t(1), uint8_t(128)}) {
            std::vector<uint8_t> bytes = file.whole;
            bytes[at] ^= bit;
            CAPTURE(at);
            CHECK(file.head_invalid(bytes) == (at < head_bytes));
            CHECK(file.state_invalid(bytes));
        }
    }
}

TEST_CASE("snapshot_file: a file that ends too soon, wherever, or too late is invalid by its head alone") {
    const OneFile file;
    for (size_t length = 0; length < file.whole.size(); length++) {
        const std::vector<uint8_t> bytes(file.whole.begin(),
                                         file.whole.begin() + static_cast<ptrdiff_t>(length));
        CAPTURE(length);
        CHECK(file.head_invalid(bytes));
        CHECK(file.state_invalid(bytes));
    }
    std::vector<uint8_t> longer = file.whole;
    longer.push_back(0);
    CHECK(file.head_invalid(longer));
    CHECK(file.state_invalid(longer));
}

TEST_CASE("snapshot_file: another version is invalid even with the right digests") {
    const OneFile        file;
    std::vector<uint8_t> bytes = file.whole;
    put(bytes, 8, 2, 4);
    sign_head(bytes, 32 + 11 + 7 + 16);
    CHECK(file.head_invalid(bytes));
    put(bytes, 8, 1, 4);
    sign_head(bytes, 32 + 11 + 7 + 16);
    CHECK_FALSE(file.head_invalid(bytes)); // so it was the version
}

TEST_CASE("snapshot_file: huge declared lengths are refused before anything of that size is allocated") {
    const OneFile file;
    const long    before = peak_kib();
    for (const size_t at : {size_t(12), size_t(16), size_t(20)}) {
        for (const uint64_t length : {uint64_t(0xffffffff), uint64_t(0x7fffffff), uint64_t(1) << 30}) {
            std::vector<uint8_t> bytes = file.whole;
            put(bytes, at, length, 4);
            CHECK(file.head_invalid(bytes));
            // And with a file that really is as large as its lengths say: it has holes, and costs nothing.
            const uint64_t unit  = at == 20 ? 4 : 1;
            const uint64_t other = at == 12 ? 11 : at == 16 ? 7 : 4;
            fs::resize_file(file.path, file.whole.size() + (length - other) * unit);
            CHECK(is_invalid(read_snapshot_head(file.path)));
            CHECK(is_invalid(read_snapshot_state(file.path, HEAD)));
        }
    }
    for (const uint64_t length : {~uint64_t(0), ~uint64_t(0) - 113, uint64_t(1) << 63, uint64_t(1) << 40}) {
        std::vector<uint8_t> bytes = file.whole;
        put(bytes, 24, length, 8);
        sign_head(bytes, 32 + 11 + 7 + 16);
        CHECK(file.head_invalid(bytes));
        CHECK(file.state_invalid(bytes));
    }
    CHECK(peak_kib() - before < 100 * 1024);
}

TEST_CASE("snapshot_file: a state is not read from a file that says it is of something else") {
    const OneFile file;
    for (const SnapshotHead & other : {SnapshotHead{"other", HEAD.context, HEAD.tokens, 40},
                                       SnapshotHead{HEAD.fingerprint, "", HEAD.tokens, 40},
                                       SnapshotHead{HEAD.fingerprint, HEAD.context, {1, 2, -3, 70001}, 40},
                                       SnapshotHead{HEAD.fingerprint, HEAD.context, HEAD.tokens, 39}}) {
        CHECK(is_invalid(read_snapshot_state(file.path, other)));
    }
}

TEST_CASE("snapshot_file: a file that is not there or no file is unreadable, not invalid") {
    const OneFile file;
    const auto    missing = read_snapshot_head(file.folder.path / "b");
    CHECK(std::get<SnapshotFault>(missing) == SnapshotFault::unreadable);
    const auto folder = read_snapshot_state(file.folder.path, HEAD);
    CHECK(std::get<SnapshotFault>(folder) == SnapshotFault::unreadable);
}

TEST_CASE("snapshot_file: a write that fails says why and leaves the old file as it was") {
    const OneFile file;
    CHECK(write_snapshot(file.path, file.folder.path / "missing" / "a.tmp", HEAD, STATE) != "");
    CHECK(write_snapshot(file.folder.path / "missing" / "a", file.folder.path / "a.tmp", HEAD, STATE) != "");

    // A disk that is full in the middle of the state.
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const auto   handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small   = {100000, before.rlim_max};
    SnapshotHead head    = HEAD;
    head.state_bytes     = 1 << 20;
    setrlimit(RLIMIT_FSIZE, &small);
    const std::string problem =
        write_snapshot(file.path, file.folder.path / "a.tmp", head, std::vector<uint8_t>(1 << 20));
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    CHECK(problem.find("File too large") != std::string::npos);

    CHECK(file.folder.names() == std::vector<std::string>{"a"});
    CHECK(read_bytes(file.path) == file.whole);
}
