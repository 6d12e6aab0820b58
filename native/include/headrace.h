// The C ABI of the Headrace engine: everything a host may call.
//
// Callers: web/worker/engine_port.js (WebAssembly) and headrace/library.py (ctypes); implemented in
// native/abi/headrace.cpp. Not an API for applications: they use the JavaScript or Python client.
//
// Text in and out is UTF-8 JSON; the shapes are documented in ARCHITECTURE.md, "The wire format".
//
// Ownership. Strings given to a function are read before it returns. Strings returned stay the
// engine's: they are valid until the next call on the same engine (for hr_describe: for ever).
//
// Threading. An engine belongs to the thread that created it; no call may be made from another one,
// nor from inside a hr_progress_fn. Different engines are independent.
//
// Errors. No function throws and none ends the process because of its input. What a function cannot
// do becomes an event ("failed" for one request, "engine_failed" for the engine), see hr_engine_events.
#ifndef HEADRACE_H
#define HEADRACE_H

#include <stddef.h>
#include <stdint.h>

#define HR_ABI_VERSION 1

#if defined(_WIN32)
#define HR_API __declspec(dllexport)
#else
#define HR_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_engine hr_engine;

// Told how far loading has come, from 0 to 1. Returning 0 ends the load with the error "cancelled".
typedef int32_t (*hr_progress_fn)(void * user, double fraction);

// HR_ABI_VERSION of this build. A host compares it with its own before any other call.
HR_API int32_t hr_abi_version(void);

// JSON: ABI version, build facts, every option with type, range, default and help, every error code.
HR_API const char * hr_describe(void);

// A new engine without a model; NULL only when there is no memory for it.
HR_API hr_engine * hr_engine_create(void);

// Loads the model named by a load command and blocks until that is done. Returns 1 and leaves a
// "ready" event, or returns 0 and leaves "engine_failed"; after a failure the engine can only be freed.
HR_API int32_t hr_engine_load(hr_engine * engine, const char * json, size_t length, hr_progress_fn progress,
                              void * user);

// Queues a request. Leaves an "accepted" event, or "failed" if the request is not valid.
HR_API void hr_engine_submit(hr_engine * engine, const char * json, size_t length);

// Ends a request at the next tick, with a "done" event whose finishReason is "cancelled". An id that
// is unknown or already ended is ignored: cancelling twice, or too late, is not an error.
HR_API void hr_engine_cancel(hr_engine * engine, double request_id);

// Runs scheduler steps until budget_ms milliseconds are spent, at least one if there is work.
// Returns the number of unfinished requests, 0 when idle, -1 when the engine has failed for good.
HR_API int32_t hr_engine_tick(hr_engine * engine, double budget_ms);

// Takes the events since the last call, as a JSON array in the order they happened.
HR_API const char * hr_engine_events(hr_engine * engine, size_t * length);

// Frees the engine and everything it holds. Unfinished requests end without a further event.
HR_API void hr_engine_free(hr_engine * engine);

#ifdef __cplusplus
}
#endif

#endif
