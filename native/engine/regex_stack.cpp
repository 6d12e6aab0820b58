// The thread behind regex_stack.h.
#include "engine/regex_stack.h"

#include "engine/abort_guard.h"
#include "engine/error.h"

#include <pthread.h>

#include <exception>

namespace headrace {

#ifdef __GLIBCXX__

namespace {

constexpr size_t SMALL_TEXT     = 4096; // fits on any stack
constexpr size_t STACK_PER_BYTE = 512;  // of text; a level takes about 330, and the memory is only reserved
constexpr size_t STACK_BESIDES  = size_t{1} << 20;

struct Job {
    const std::function<void()> & call;
    std::exception_ptr            failure;
};

void * run(void * argument) {
    Job & job = *static_cast<Job *>(argument);
    try {
        with_abort_guard(job.call);
    } catch (...) {
        job.failure = std::current_exception();
    }
    return nullptr;
}

bool run_on_own_stack(size_t bytes, Job & job) {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) {
        return false;
    }
    pthread_t  thread;
    const bool started = pthread_attr_setstacksize(&attributes, bytes) == 0 &&
                         pthread_create(&thread, &attributes, run, &job) == 0;
    pthread_attr_destroy(&attributes);
    if (started) {
        pthread_join(thread, nullptr);
    }
    return started;
}

} // namespace

void with_regex_stack(size_t bytes, const std::function<void()> & call) {
    if (bytes <= SMALL_TEXT) {
        call();
        return;
    }
    Job          job{call, nullptr};
    const size_t stack = (STACK_BESIDES + bytes * STACK_PER_BYTE) / STACK_BESIDES * STACK_BESIDES;
    if (!run_on_own_stack(stack, job)) {
        throw Error(ErrorCode::out_of_memory,
                    "there is no memory to tokenise a text of " + std::to_string(bytes) + " bytes");
    }
    if (job.failure) {
        std::rethrow_exception(job.failure);
    }
}

#else

void with_regex_stack(size_t, const std::function<void()> & call) {
    call();
}

#endif

} // namespace headrace
