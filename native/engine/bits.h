// Sets of slots as bit masks: bit i stands for slot i.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace headrace {

constexpr uint64_t bit(size_t index) {
    return uint64_t{1} << index;
}

constexpr size_t count_bits(uint64_t mask) {
    return static_cast<size_t>(std::popcount(mask));
}

// Calls visit(index) for each bit that is set, the lowest first.
template <class Visit> constexpr void each_bit(uint64_t mask, Visit visit) {
    for (; mask != 0; mask &= mask - 1) {
        visit(static_cast<size_t>(std::countr_zero(mask)));
    }
}

} // namespace headrace
