// See snapshot_file.h.
#include "engine/snapshot_file.h"

#include "engine/content_hash.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <system_error>

namespace headrace {

namespace fs = std::filesystem;

static constexpr std::array<uint8_t, 8> MAGIC   = {'H', 'R', 'P', 'R', 'E', 'F', 'I', 'X'};
static constexpr uint32_t               VERSION = 1;
static constexpr size_t                 FIXED   = 32;
static constexpr size_t                 DIGEST  = std::tuple_size_v<ContentHash::Digest>;

using File = std::unique_ptr<std::FILE, int (*)(std::FILE *)>;

static File open_file(const fs::path & path, const char * mode) {
    return {std::fopen(path.string().c_str(), mode), std::fclose};
}

// --- numbers -------------------------------------------------------------------------------------

static void put_number(std::vector<uint8_t> & bytes, uint64_t number, size_t width) {
    for (size_t i = 0; i < width; i++) {
        bytes.push_back(static_cast<uint8_t>(number >> (8 * i)));
    }
}

static uint64_t get_number(const uint8_t * bytes, size_t width) {
    uint64_t number = 0;
    for (size_t i = 0; i < width; i++) {
        number |= static_cast<uint64_t>(bytes[i]) << (8 * i);
    }
    return number;
}

static std::vector<uint8_t> encode_head(const SnapshotHead & head) {
    std::vector<uint8_t> bytes(MAGIC.begin(), MAGIC.end());
    put_number(bytes, VERSION, 4);
    put_number(bytes, head.fingerprint.size(), 4);
    put_number(bytes, head.context.size(), 4);
    put_number(bytes, head.tokens.size(), 4);
    put_number(bytes, head.state_bytes, 8);
    bytes.insert(bytes.end(), head.fingerprint.begin(), head.fingerprint.end());
    bytes.insert(bytes.end(), head.context.begin(), head.context.end());
    for (const Token token : head.tokens) {
        put_number(bytes, static_cast<uint32_t>(token), 4);
    }
    return bytes;
}

bool snapshot_can_be_file(const SnapshotHead & head) {
    return head.fingerprint.size() <= SNAPSHOT_MAX_TEXT && head.context.size() <= SNAPSHOT_MAX_TEXT &&
           !head.tokens.empty() && head.tokens.size() <= SNAPSHOT_MAX_TOKENS && head.state_bytes > 0;
}

uint64_t snapshot_file_bytes(const SnapshotHead & head) {
    return FIXED + head.fingerprint.size() + head.context.size() + sizeof(uint32_t) * head.tokens.size() +
           DIGEST + head.state_bytes + DIGEST;
}

// --- reading -------------------------------------------------------------------------------------

namespace {

// Reads a file from its beginning and hashes what it has read.
class Reader {
  public:
    explicit Reader(const fs::path & path) : file_(open_file(path, "rb")) {}

    bool is_open() const { return file_ != nullptr; }

    bool read(std::span<uint8_t> bytes) {
        if (std::fread(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) {
            return false;
        }
        hash_.update(bytes);
        return true;
    }

    bool read_text(std::string & text, size_t bytes) {
        text.resize(bytes);
        return read({reinterpret_cast<uint8_t *>(text.data()), bytes});
    }

    bool matches_digest() {
        const ContentHash::Digest expected = hash_.digest();
        ContentHash::Digest       found;
        return read(found) && found == expected;
    }

    // A read that failed: because the file ends too soon, or because it cannot be read.
    SnapshotFault fault() const {
        return std::ferror(file_.get()) != 0 ? SnapshotFault::unreadable : SnapshotFault::invalid;
    }

  private:
    File        file_;
    ContentHash hash_;
};

} // namespace

static SnapshotResult<SnapshotHead> read_head(Reader & reader, uint64_t file_bytes) {
    std::array<uint8_t, FIXED> fixed;
    if (!reader.read(fixed)) {
        return reader.fault();
    }
    const uint64_t fingerprint_bytes = get_number(&fixed[12], 4);
    const uint64_t context_bytes     = get_number(&fixed[16], 4);
    const uint64_t tokens            = get_number(&fixed[20], 4);
    const uint64_t state_bytes       = get_number(&fixed[24], 8);
    const uint64_t around_state =
        FIXED + fingerprint_bytes + context_bytes + tokens * sizeof(uint32_t) + 2 * DIGEST;
    if (!std::equal(MAGIC.begin(), MAGIC.end(), fixed.begin()) || get_number(&fixed[8], 4) != VERSION ||
        fingerprint_bytes > SNAPSHOT_MAX_TEXT || context_bytes > SNAPSHOT_MAX_TEXT || tokens == 0 ||
        tokens > SNAPSHOT_MAX_TOKENS || state_bytes == 0 || file_bytes < around_state ||
        state_bytes != file_bytes - around_state) {
        return SnapshotFault::invalid;
    }
    SnapshotHead         head;
    std::vector<uint8_t> token_bytes(tokens * sizeof(uint32_t));
    if (!reader.read_text(head.fingerprint, fingerprint_bytes) ||
        !reader.read_text(head.context, context_bytes) || !reader.read(token_bytes) ||
        !reader.matches_digest()) {
        return reader.fault();
    }
    head.state_bytes = state_bytes;
    head.tokens.reserve(tokens);
    for (size_t i = 0; i < token_bytes.size(); i += sizeof(uint32_t)) {
        head.tokens.push_back(static_cast<Token>(static_cast<uint32_t>(get_number(&token_bytes[i], 4))));
    }
    return head;
}

SnapshotResult<SnapshotHead> read_snapshot_head(const fs::path & path) {
    std::error_code error;
    const uint64_t  file_bytes = fs::file_size(path, error);
    Reader          reader(path);
    if (error || !reader.is_open()) {
        return SnapshotFault::unreadable;
    }
    return read_head(reader, file_bytes);
}

SnapshotResult<std::vector<uint8_t>> read_snapshot_state(const fs::path &     path,
                                                         const SnapshotHead & expected) {
    std::error_code error;
    const uint64_t  file_bytes = fs::file_size(path, error);
    Reader          reader(path);
    if (error || !reader.is_open()) {
        return SnapshotFault::unreadable;
    }
    const SnapshotResult<SnapshotHead> head = read_head(reader, file_bytes);
    if (const SnapshotFault * fault = std::get_if<SnapshotFault>(&head)) {
        return *fault;
    }
    if (std::get<SnapshotHead>(head) != expected) {
        return SnapshotFault::invalid;
    }
    std::vector<uint8_t> state;
    if (expected.state_bytes > static_cast<uint64_t>(std::numeric_limits<ptrdiff_t>::max())) {
        return SnapshotFault::unreadable; // 32 bits, and a file of another host's
    }
    try {
        state.resize(static_cast<size_t>(expected.state_bytes));
    } catch (const std::bad_alloc &) {
        return SnapshotFault::unreadable;
    }
    if (!reader.read(state) || !reader.matches_digest()) {
        return reader.fault();
    }
    return state;
}

// --- writing -------------------------------------------------------------------------------------

// Empty: done; else what went wrong.
static std::string write_file(const fs::path & path, const SnapshotHead & head,
                              std::span<const uint8_t> state) {
    File file = open_file(path, "wb");
    if (!file) {
        return std::string("cannot create a file: ") + std::strerror(errno);
    }
    ContentHash hash;
    bool        good  = true;
    const auto  write = [&](std::span<const uint8_t> bytes) {
        hash.update(bytes);
        good = good && std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size();
    };
    write(encode_head(head));
    write(hash.digest());
    write(state);
    write(hash.digest());
    good             = good && std::fflush(file.get()) == 0;
    const int reason = errno;
    if (std::fclose(file.release()) != 0 || !good) {
        return std::string("cannot write: ") + std::strerror(good ? errno : reason);
    }
    return "";
}

std::string write_snapshot(const fs::path & path, const fs::path & temporary, const SnapshotHead & head,
                           std::span<const uint8_t> state) {
    std::string     problem = write_file(temporary, head, state);
    std::error_code error;
    if (problem.empty()) {
        fs::rename(temporary, path, error);
        if (error) {
            problem = "cannot rename: " + error.message();
        }
    }
    if (!problem.empty()) {
        fs::remove(temporary, error);
    }
    return problem;
}

} // namespace headrace
