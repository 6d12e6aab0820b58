// The small helpers behind fuzz_target.h, and memory that runs out the way it does without a sanitizer.
#include "soak/fuzz_target.h"

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace headrace::soak {

std::string fuzz_outcome;

std::string fuzz_setting(const char * name, const char * otherwise) {
    const char * value = std::getenv(name);
    return value ? value : otherwise;
}

std::string without_particulars(const std::string & text) {
    std::string plain;
    char        quote = 0;
    for (const char c : text) {
        if (quote != 0) {
            quote = c == quote ? 0 : quote;
        } else if (c == '"' || (c == '\'' && plain.ends_with(' '))) { // not an apostrophe
            quote = c;
            plain += "…";
        } else if (std::isdigit(static_cast<unsigned char>(c)) == 0) {
            plain += c;
        } else if (!plain.ends_with('#')) {
            plain += '#';
        }
    }
    return plain.substr(0, 100);
}

void fuzz_finding(const std::string & what) {
    std::fprintf(stderr, "fuzz finding: %s\n", what.c_str());
    std::fflush(stderr);
    std::abort();
}

} // namespace headrace::soak

#if defined(__SANITIZE_ADDRESS__)
// ASan's own operator new ends the process where it should throw. allocator_may_return_null mends malloc only.
static void * allocate(size_t size) {
    void * memory = std::malloc(size == 0 ? 1 : size);
    if (!memory) {
        throw std::bad_alloc();
    }
    return memory;
}

void * operator new(size_t size) {
    return allocate(size);
}
void * operator new[](size_t size) {
    return allocate(size);
}
void * operator new(size_t size, const std::nothrow_t &) noexcept {
    return std::malloc(size == 0 ? 1 : size);
}
void * operator new[](size_t size, const std::nothrow_t &) noexcept {
    return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void * memory) noexcept {
    std::free(memory);
}
void operator delete[](void * memory) noexcept {
    std::free(memory);
}
void operator delete(void * memory, size_t) noexcept {
    std::free(memory);
}
void operator delete[](void * memory, size_t) noexcept {
    std::free(memory);
}

extern "C" const char * __asan_default_options();

extern "C" const char * __asan_default_options() {
    return "allocator_may_return_null=1:max_allocation_size_mb=1024:hard_rss_limit_mb=3000:"
           "quarantine_size_mb=32:detect_leaks=1:handle_abort=1";
}
#endif
