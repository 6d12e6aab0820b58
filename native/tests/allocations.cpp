// The counting operator new behind allocations.h. It replaces the one of the whole test program.
#include "allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

static std::atomic<size_t> count{0};

size_t allocations() {
    return count;
}

void * operator new(size_t size) {
    count++;
    if (void * memory = std::malloc(size > 0 ? size : 1)) {
        return memory;
    }
    throw std::bad_alloc();
}

void operator delete(void * memory) noexcept {
    std::free(memory);
}

void operator delete(void * memory, size_t) noexcept {
    std::free(memory);
}
