// The callback behind abort_guard.h.
#include "engine/abort_guard.h"

#include "engine/error.h"

#include <ggml-cpu.h>
#include <ggml.h>
#include <pthread.h>

#include <atomic>
#include <mutex>

namespace headrace {

namespace {

thread_local int guards = 0; // AbortGuards alive on this thread

// What the first thread to give up said; the threads that wait for it only know that one has.
std::atomic<unsigned> abort_count{0};
std::mutex            reason_mutex;
std::string           reason;

std::string first_reason() {
    std::lock_guard lock(reason_mutex);
    return reason;
}

[[noreturn]] void throw_aborted() {
    throw Error(ErrorCode::engine_aborted, "the engine gave up: " + first_reason());
}

// "/where/it/was/built/llama.cpp/src/x.cpp:7: GGML_ASSERT(…) failed" → "src/x.cpp:7: …"
std::string without_build_folder(std::string message) {
    const std::string root = "llama.cpp/";
    const size_t      at   = message.find(root);
    return at == std::string::npos ? message : message.substr(at + root.size());
}

void on_abort(const char * message) {
    {
        std::lock_guard lock(reason_mutex);
        const bool echo = std::string_view(message).ends_with("another thread of this graph has aborted");
        if (!echo) {
            reason = without_build_folder(message);
        }
    }
    abort_count++;
    ggml_cpu_mark_aborted();
    if (guards > 0) {
        throw_aborted();
    }
    pthread_exit(nullptr);
}

} // namespace

AbortGuard::AbortGuard() : aborts_before_(abort_count.load()) {
    static std::once_flag installed;
    std::call_once(installed, [] { ggml_set_abort_callback(on_abort); });
    guards++;
}

AbortGuard::~AbortGuard() {
    guards--;
}

void AbortGuard::check() const {
    if (abort_count.load() != aborts_before_) {
        throw_aborted();
    }
}

} // namespace headrace
