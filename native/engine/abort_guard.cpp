// The callback behind abort_guard.h.
#include "engine/abort_guard.h"

#include "engine/error.h"

#include <ggml-cpu.h>
#include <ggml.h>
#include <pthread.h>

#include <mutex>
#include <string_view>

namespace headrace {

namespace {

thread_local int         guards = 0; // AbortGuards alive on this thread
thread_local unsigned    aborts = 0; // of work that this thread does or waits for
thread_local std::string reason;     // of the last one

// What a compute thread said before it ended: the engine's thread, which waits for it, only learns that it
// has. Shared by all engines of the process; two that give up at once may tell each other's reason.
std::mutex  last_words_mutex;
std::string last_words;

// "/where/it/was/built/llama.cpp/src/x.cpp:7: GGML_ASSERT(…) failed" → "src/x.cpp:7: …"
std::string without_build_folder(std::string message) {
    const std::string root = "llama.cpp/";
    const size_t      at   = message.find(root);
    return at == std::string::npos ? message : message.substr(at + root.size());
}

// Returns what was said first where several threads of a graph give up.
std::string take_note(std::string_view message) {
    const std::lock_guard lock(last_words_mutex);
    if (!message.ends_with("another thread of this graph has aborted")) {
        last_words = without_build_folder(std::string(message));
    }
    return last_words;
}

[[noreturn]] void throw_aborted() {
    throw Error(ErrorCode::engine_aborted, "the engine gave up: " + reason);
}

void on_abort(const char * message) {
    const std::string said      = take_note(message);
    const bool        computing = ggml_cpu_mark_aborted();
    if (guards > 0) {
        aborts++;
        reason = said;
        throw_aborted();
    }
    if (computing) {
        pthread_exit(nullptr);
    }
    // Somebody else's thread: ggml ends the process, as it does without us.
}

} // namespace

AbortGuard::AbortGuard() : aborts_before_(aborts) {
    static std::once_flag installed;
    std::call_once(installed, [] { ggml_set_abort_callback(on_abort); });
    guards++;
}

AbortGuard::~AbortGuard() {
    guards--;
}

void AbortGuard::check() const {
    if (aborts != aborts_before_) {
        throw_aborted();
    }
}

} // namespace headrace
