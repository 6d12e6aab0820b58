// A fingerprint follows the bytes and nothing but the bytes (case H3).
#include "engine/fingerprint.h"

#include "engine/content_hash.h"
#include "engine/error.h"
#include "temporary_folder.h"

#include <doctest/doctest.h>

using namespace headrace;
namespace fs = std::filesystem;

namespace {

std::string combined(const std::vector<std::string> & parts) {
    return combine_fingerprints(parts);
}

} // namespace

TEST_CASE("fingerprint: a file replaced under the same path, size and time has another one") {
    const TemporaryFolder folder;
    const fs::path        path = folder.path / "model.gguf";
    std::vector<uint8_t>  bytes(3'000'000, 7); // more than one piece
    write_bytes(path, bytes);
    const auto        time  = fs::last_write_time(path);
    const std::string first = fingerprint_file(path.string());
    CHECK(first.size() == 32);
    CHECK(fingerprint_file(path.string()) == first);
    for (const size_t at : {size_t(0), size_t(1) << 20, bytes.size() / 2, bytes.size() - 1}) {
        bytes[at] ^= 1;
        write_bytes(path, bytes);
        fs::last_write_time(path, time);
        CHECK(fingerprint_file(path.string()) != first);
        bytes[at] ^= 1;
    }
    write_bytes(folder.path / "copy", bytes);
    CHECK(fingerprint_file((folder.path / "copy").string()) == first);
    bytes.push_back(7);
    write_bytes(path, bytes);
    CHECK(fingerprint_file(path.string()) != first);
}

TEST_CASE("fingerprint: a published value of XXH3-128, so that all hosts agree") {
    // Of no bytes, as given in xxHash's own sanity test.
    CHECK(hex(ContentHash().digest()) == "99aa06d3014798d86001c324468d497f");
    const TemporaryFolder folder;
    write_bytes(folder.path / "empty", {});
    CHECK(fingerprint_file((folder.path / "empty").string()) == "99aa06d3014798d86001c324468d497f");
}

TEST_CASE("fingerprint: bytes hash the same in one piece and in many") {
    std::vector<uint8_t> bytes(10'000);
    for (size_t i = 0; i < bytes.size(); i++) {
        bytes[i] = static_cast<uint8_t>(i * i >> 3);
    }
    ContentHash whole;
    ContentHash pieces;
    whole.update(bytes);
    for (size_t at = 0, step = 1; at < bytes.size(); at += step, step = step * 2 + 1) {
        step = std::min(step, bytes.size() - at);
        pieces.update({bytes.data() + at, step});
    }
    CHECK(whole.digest() == pieces.digest());
}

TEST_CASE("fingerprint: parts count by content, order and where one ends") {
    const std::string ab_c = combined({"ab", "c"});
    CHECK(combined({"ab", "c"}) == ab_c);
    CHECK(combined({"a", "bc"}) != ab_c);
    CHECK(combined({"c", "ab"}) != ab_c);
    CHECK(combined({"ab", "c", ""}) != ab_c);
    CHECK(combined({"ab", "d"}) != ab_c);
}

TEST_CASE("fingerprint: a file that is not there or cannot be read is an error, and progress can end it") {
    const TemporaryFolder folder;
    CHECK_THROWS_AS(fingerprint_file((folder.path / "missing").string()), Error);
    CHECK_THROWS_AS(fingerprint_file(folder.path.string()), Error);
    write_bytes(folder.path / "file", std::vector<uint8_t>(3 << 20));
    std::vector<double> shares;
    fingerprint_file((folder.path / "file").string(), [&](double share) {
        shares.push_back(share);
        return true;
    });
    CHECK(shares.size() == 3);
    CHECK(shares.back() == 1);
    CHECK_THROWS_AS(fingerprint_file((folder.path / "file").string(), [](double) { return false; }), Error);
}

TEST_CASE("fingerprint: every shard of a model counts, and their order") {
    const TemporaryFolder          folder;
    const std::vector<std::string> paths{(folder.path / "1").string(), (folder.path / "2").string()};
    write_bytes(paths[0], {1, 2, 3});
    write_bytes(paths[1], {4, 5, 6});
    const std::string first = fingerprint_files(paths);
    CHECK(fingerprint_files({{paths[1], paths[0]}}) != first);
    CHECK(fingerprint_files({{paths[0]}}) == fingerprint_file(paths[0]));
    write_bytes(paths[1], {4, 5, 7});
    CHECK(fingerprint_files(paths) != first);
}
