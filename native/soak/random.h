// Random numbers that are the same on every machine for the same seed: what a soak or fuzz run is repeated by.
//
// Not for sampling tokens, and not for secrets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace headrace::soak {

class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}

    // splitmix64
    uint64_t next() {
        uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
        z          = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z          = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }

    // From 0 to count - 1; 0 for a count of 0.
    size_t below(size_t count) { return count == 0 ? 0 : static_cast<size_t>(next() % count); }

    // Both ends included.
    int64_t between(int64_t low, int64_t high) {
        return low + static_cast<int64_t>(next() % (static_cast<uint64_t>(high - low) + 1));
    }

    // From 0 to 1.
    double share() { return static_cast<double>(next() >> 11) / 9007199254740992.0; }

    bool chance(double probability) { return share() < probability; }

    template <class List> const auto & pick(const List & list) {
        return *(std::begin(list) + static_cast<std::ptrdiff_t>(below(std::size(list))));
    }

  private:
    uint64_t state_;
};

} // namespace headrace::soak
