// Turns ggml's way of giving up, ending the process, into an exception.
//
// GGML_ABORT calls the callback installed here. On a thread that holds an AbortGuard it throws Error
// (engine_aborted). On one of ggml's compute threads, where nobody could catch it, it lets the others out of
// their barrier (native/patches/0001), the engine's own thread among them, and ends that thread.
// After that the model and its context are in an unknown state: free them, do not use them.
#pragma once

#include <string>

namespace headrace {

class AbortGuard {
  public:
    // For the current thread, until destroyed. May be nested.
    AbortGuard();
    ~AbortGuard();
    AbortGuard(const AbortGuard &)             = delete;
    AbortGuard & operator=(const AbortGuard &) = delete;

    // Throws if this thread's work was aborted since construction, also where a caller has swallowed it.
    void check() const;

  private:
    unsigned aborts_before_;
};

// Makes a call under a guard. Whatever the call does with an abort inside it, it leaves here as one.
template <class Call> void with_abort_guard(Call call) {
    const AbortGuard guard;
    try {
        call();
    } catch (...) {
        guard.check();
        throw;
    }
    guard.check();
}

} // namespace headrace
