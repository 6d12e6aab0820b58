// Turns ggml's way of giving up, ending the process, into an exception.
//
// GGML_ABORT calls the callback installed here. On the thread that holds an AbortGuard it throws Error
// (engine_aborted); on one of ggml's compute threads, where nobody could catch it, it notes the reason,
// lets the others out of their barrier (native/patches/0001) and ends that thread.
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

    // Throws if an abort happened since construction, also where a caller has swallowed the exception.
    void check() const;

  private:
    unsigned aborts_before_;
};

} // namespace headrace
