// The folder stays within its bytes, cleans up after crashes, and leaves alone what is not its own.
#include "engine/snapshot_folder.h"

#include "temporary_folder.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

using namespace headrace;
namespace fs = std::filesystem;

namespace {

constexpr size_t STATE_BYTES = 1000;

SnapshotHead head(Token token, const std::string & fingerprint = "mine") {
    return {fingerprint, "", {token, token + 1}, STATE_BYTES};
}

std::vector<uint8_t> state(Token token) {
    return std::vector<uint8_t>(STATE_BYTES, static_cast<uint8_t>(token));
}

const uint64_t FILE_BYTES = snapshot_file_bytes(head(1));

std::string write(SnapshotFolder & folder, Token token, const std::string & fingerprint = "mine") {
    return folder.write(head(token, fingerprint), state(token)).name;
}

// The first tokens of what a new session finds.
std::vector<Token> found(const TemporaryFolder & folder, uint64_t limit = 1 << 20) {
    SnapshotFolder     session(folder.path.string(), limit, "mine");
    std::vector<Token> tokens;
    for (const SnapshotFolder::Found & file : session.take_found()) {
        tokens.push_back(file.head.tokens.front());
    }
    return tokens;
}

using Tokens = std::vector<Token>;

} // namespace

TEST_CASE(
    "snapshot_folder: a missing folder is made, and a new session finds what was written, newest first") {
    const TemporaryFolder folder;
    const std::string     deep = (folder.path / "a" / "b").string();
    SnapshotFolder        first(deep, 1 << 20, "mine");
    for (Token token = 1; token <= 5; token++) {
        CHECK(write(first, token) != "");
    }
    CHECK(first.bytes() == 5 * FILE_BYTES);
    SnapshotFolder second(deep, 1 << 20, "mine");
    const auto     files = second.take_found();
    REQUIRE(files.size() == 5);
    CHECK(files.front().head == head(5));
    CHECK(files.back().head == head(1));
    CHECK(std::get<std::vector<uint8_t>>(second.read(files[1].name, files[1].head)) == state(4));
    CHECK(second.bytes() == 5 * FILE_BYTES);
}

TEST_CASE("snapshot_folder: the same prefix is one file, whoever writes it") {
    const TemporaryFolder folder;
    SnapshotFolder        one(folder.path.string(), FILE_BYTES + 10, "mine");
    SnapshotFolder        two(folder.path.string(), FILE_BYTES + 10, "mine");
    CHECK(write(one, 1) == write(two, 1));
    CHECK(folder.names().size() == 1);
    CHECK(two.evicted() == 0);
}

TEST_CASE(
    "snapshot_folder: what was used longest ago goes first, other models' files and other engines' too") {
    const TemporaryFolder folder;
    SnapshotFolder        mine(folder.path.string(), 4 * FILE_BYTES, "mine");
    SnapshotFolder        other(folder.path.string(), 4 * FILE_BYTES, "else");
    const std::string     oldest  = write(other, 1, "else");
    const std::string     touched = write(mine, 2);
    const std::string     old     = write(mine, 3);
    write(other, 4, "else");
    CHECK(other.bytes() == 4 * FILE_BYTES);
    mine.touch(touched);

    CHECK(mine.write(head(5), state(5)).removed == std::vector<std::string>{oldest});
    CHECK(mine.write(head(6), state(6)).removed == std::vector<std::string>{old});
    CHECK(mine.bytes() == 4 * FILE_BYTES);
    CHECK(mine.evicted() == 2);
    CHECK(found(folder) == Tokens{6, 5, 2});
}

TEST_CASE("snapshot_folder: a smaller limit is made true at once, the oldest going unread") {
    const TemporaryFolder folder;
    {
        SnapshotFolder first(folder.path.string(), 1 << 20, "mine");
        for (Token token = 1; token <= 5; token++) {
            write(first, token);
        }
    }
    const fs::path huge = folder.path / (std::string(32, '0') + ".hrprefix");
    write_bytes(huge, {1});
    fs::resize_file(huge, uint64_t(1) << 40); // all hole
    SnapshotFolder small(folder.path.string(), 2 * FILE_BYTES + 7, "mine");
    CHECK(small.bytes() == 2 * FILE_BYTES);
    CHECK(small.evicted() == 4);
    CHECK_FALSE(fs::exists(huge));
    CHECK(found(folder) == Tokens{5, 4});
}

TEST_CASE(
    "snapshot_folder: damaged files go, other models' stay, and what is not a snapshot is never touched") {
    const TemporaryFolder folder;
    std::string           name;
    std::string           theirs;
    {
        SnapshotFolder first(folder.path.string(), 1 << 20, "mine");
        SnapshotFolder other(folder.path.string(), 1 << 20, "else");
        write(first, 1);
        name   = write(first, 2);
        theirs = write(other, 3, "else");
    }
    std::vector<uint8_t> bytes = read_bytes(folder.path / name);
    const auto           add   = [&](const std::string & file, std::vector<uint8_t> content) {
        write_bytes(folder.path / file, content);
        return file;
    };
    const std::string           digits = std::string(31, 'a');
    const std::set<std::string> gone   = {
        add(digits + "0.hrprefix", {}),
        add(digits + "1.hrprefix", {bytes.begin(), bytes.end() - 1}),
        add(digits + "2.hrprefix", std::vector<uint8_t>(5000, 'x')),
        add(digits + "3.hrprefix.123.tmp", bytes), // left by a crash
    };
    const std::set<std::string> kept = {
        add("notes.txt", {1}),
        add("notes.hrprefix", {1}),
        add(digits + "A.hrprefix", {1}),
        add(digits + "a.hrprefix.bak", {1}),
        add(digits + "a0.hrprefix", {1}),
        add("model.tmp", {1}),
        name,
        theirs,
    };
    fs::create_directory(folder.path / (digits + "b.hrprefix"));
    fs::create_symlink("notes.txt", folder.path / (digits + "c.hrprefix"));

    SnapshotFolder session(folder.path.string(), 1 << 20, "mine");
    CHECK(session.rejected() == 3);
    CHECK(session.bytes() == 3 * FILE_BYTES);
    CHECK(session.take_found().size() == 2);
    const std::vector<std::string> left = folder.names();
    for (const std::string & file : gone) {
        CAPTURE(file);
        CHECK(std::count(left.begin(), left.end(), file) == 0);
    }
    for (const std::string & file : kept) {
        CAPTURE(file);
        CHECK(std::count(left.begin(), left.end(), file) == 1);
    }
    CHECK(left.size() == kept.size() + 3); // token 1's file, the folder and the link
}

TEST_CASE("snapshot_folder: a damaged state is deleted when it is read, a missing one is only missing") {
    const TemporaryFolder folder;
    SnapshotFolder        session(folder.path.string(), 1 << 20, "mine");
    const std::string     damaged = write(session, 1);
    const std::string     missing = write(session, 2);
    std::vector<uint8_t>  bytes   = read_bytes(folder.path / damaged);
    bytes[bytes.size() - 20] ^= 1;
    write_bytes(folder.path / damaged, bytes);
    fs::remove(folder.path / missing);
    CHECK(is_invalid(session.read(damaged, head(1))));
    CHECK(std::get<SnapshotFault>(session.read(missing, head(2))) == SnapshotFault::unreadable);
    CHECK(session.rejected() == 1);
    CHECK(folder.names().empty());
}

TEST_CASE(
    "snapshot_folder: a folder that cannot be made or goes away is reported, and given up after a while") {
    const TemporaryFolder folder;
    write_bytes(folder.path / "file", {1});
    for (const fs::path & path :
         {folder.path / "file", folder.path / "file" / "below", fs::path("/proc/x")}) {
        SnapshotFolder none(path.string(), 1 << 20, "mine");
        CHECK_FALSE(none.is_active());
        CHECK(none.problem() != "");
        CHECK(write(none, 1) == "");
    }
    SnapshotFolder session((folder.path / "x").string(), 1 << 20, "mine");
    fs::remove(folder.path / "x");
    CHECK(write(session, 1) == "");
    CHECK(session.problem().find("No such file") != std::string::npos);
    fs::create_directory(folder.path / "x");
    CHECK(write(session, 1) != ""); // it may come back
    CHECK(session.problem() == "");
    fs::remove_all(folder.path / "x");
    for (int i = 0; i < 3; i++) {
        CHECK(session.is_active());
        write(session, 1);
    }
    CHECK_FALSE(session.is_active());
}

TEST_CASE("snapshot_folder: without a folder or a limit nothing is read, written or deleted") {
    const TemporaryFolder folder;
    {
        SnapshotFolder first(folder.path.string(), 1 << 20, "mine");
        write(first, 1);
    }
    SnapshotFolder unlimited_by_nothing(folder.path.string(), 0, "mine");
    SnapshotFolder nowhere("", 1 << 20, "mine");
    CHECK(unlimited_by_nothing.take_found().empty());
    CHECK(write(unlimited_by_nothing, 2) == "");
    CHECK(write(nowhere, 2) == "");
    CHECK(unlimited_by_nothing.problem() == "");
    CHECK(folder.names().size() == 1);
}
