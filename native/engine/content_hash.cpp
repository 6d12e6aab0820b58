// The one file that includes xxHash, which llama.cpp vendors: all of it is in the header.
#include "engine/content_hash.h"

// On WebAssembly xxHash would take its NEON kernels through Emscripten's arm_neon.h, which not every
// installation has whole (Debian's has not). This macro is asked for nothing else; plain C++ serves.
#define XXH_HAS_INCLUDE(header) 0
#define XXH_INLINE_ALL
#include <hash/xxhash/xxhash.h>

#include <algorithm>
#include <iterator>

namespace headrace {

struct ContentHash::State {
    XXH3_state_t xxh;
};

ContentHash::ContentHash() : state_(std::make_unique<State>()) {
    XXH3_128bits_reset(&state_->xxh);
}

ContentHash::~ContentHash() = default;

void ContentHash::update(std::span<const uint8_t> bytes) {
    XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

ContentHash::Digest ContentHash::digest() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->xxh));
    Digest digest;
    std::copy(std::begin(canonical.digest), std::end(canonical.digest), digest.begin());
    return digest;
}

std::string hex(const ContentHash::Digest & digest) {
    constexpr char DIGITS[] = "0123456789abcdef";
    std::string    text;
    for (const uint8_t byte : digest) {
        text += DIGITS[byte >> 4];
        text += DIGITS[byte & 15];
    }
    return text;
}

} // namespace headrace
