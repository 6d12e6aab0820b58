// A 128-bit hash of bytes (XXH3), fed piece by piece.
//
// Tells contents apart and finds damage; it is no cryptographic hash. The same on every platform.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace headrace {

class ContentHash {
  public:
    using Digest = std::array<uint8_t, 16>; // big-endian

    ContentHash();
    ~ContentHash();
    ContentHash(const ContentHash &)             = delete;
    ContentHash & operator=(const ContentHash &) = delete;

    void   update(std::span<const uint8_t> bytes);
    Digest digest() const; // of everything so far; more may follow

  private:
    struct State;
    std::unique_ptr<State> state_;
};

// 32 lower-case hexadecimal digits.
std::string hex(const ContentHash::Digest & digest);

} // namespace headrace
