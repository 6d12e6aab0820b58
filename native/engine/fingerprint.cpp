// See fingerprint.h.
#include "engine/fingerprint.h"

#include "engine/content_hash.h"
#include "engine/error.h"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

namespace headrace {

static constexpr size_t PIECE = size_t(1) << 20;

std::string fingerprint_file(const std::string & path, const FingerprintProgress & progress) {
    const auto file =
        std::unique_ptr<std::FILE, int (*)(std::FILE *)>(std::fopen(path.c_str(), "rb"), std::fclose);
    if (!file) {
        throw Error(ErrorCode::model_not_found, "cannot open '" + path + "' to take its fingerprint");
    }
    std::setvbuf(file.get(), nullptr, _IONBF, 0); // the pieces are large: a second buffer only costs a copy
    std::error_code      unknown;
    const uintmax_t      total = std::filesystem::file_size(path, unknown);
    ContentHash          hash;
    std::vector<uint8_t> piece(PIECE);
    uintmax_t            done = 0;
    while (const size_t got = std::fread(piece.data(), 1, piece.size(), file.get())) {
        hash.update({piece.data(), got});
        done += got;
        const double share =
            unknown || total == 0 ? 0 : static_cast<double>(done) / static_cast<double>(total);
        if (progress && !progress(share)) {
            throw Error(ErrorCode::cancelled, "cancelled while the model's fingerprint was taken");
        }
    }
    if (std::ferror(file.get()) != 0) {
        throw Error(ErrorCode::model_not_found, "cannot read all of '" + path + "' to take its fingerprint");
    }
    return hex(hash.digest());
}

std::string fingerprint_files(std::span<const std::string> paths, const FingerprintProgress & progress) {
    std::vector<std::string> parts;
    for (const std::string & path : paths) {
        parts.push_back(fingerprint_file(path, progress));
    }
    return parts.size() == 1 ? parts.front() : combine_fingerprints(parts);
}

std::string combine_fingerprints(std::span<const std::string> parts) {
    ContentHash hash;
    for (const std::string & part : parts) {
        const std::string framed = std::to_string(part.size()) + ":" + part;
        hash.update({reinterpret_cast<const uint8_t *>(framed.data()), framed.size()});
    }
    return hex(hash.digest());
}

} // namespace headrace
