// The GPU as the engine sees it: a device of ggml's, where this program has one, and what went wrong on it.
//
// Filled in by abi/artifact.cpp, which knows what it was linked with; used by engine.cpp. Knows nothing of WebGPU.
#pragma once

#include "engine/error.h"

#include <ggml-backend.h>

#include <cstdint>
#include <optional>
#include <string>

namespace headrace {

struct GpuFault {
    enum class Kind { lost, out_of_memory, failed };

    Kind        kind;
    std::string message;
};

// What was asked of the GPU since the program began.
struct GpuCounters {
    double dispatches    = 0;
    double submits       = 0;
    double spared_waits  = 0; // waits of ggml for a queue that was idle
    double bind_groups   = 0; // made; ggml asks for one for each dispatch
    double waits         = 0; // times that the engine waited for the GPU, maps included
    double maps          = 0; // round trips that brought data back
    double writes        = 0;
    double written_bytes = 0;
    double read_bytes    = 0;
};

// Null members: this program has no GPU.
struct Gpu {
    // Null if there is none that can be used. May wait for it; may abort.
    ggml_backend_dev_t (*device)() = nullptr;

    // The first fault since the last question.
    std::optional<GpuFault> (*take_fault)() = nullptr;

    GpuCounters (*counters)() = nullptr;

    // The device for the load option `backend`: null for the CPU. Throws Error (environment_unsupported).
    ggml_backend_dev_t chosen(const std::string & backend) const;

    // Drops a fault that led to no error: it must not explain a later one.
    void forget_fault() const;

    // The error to raise in place of one that the GPU has caused; any other comes back as it is.
    Error explain(const Error & error) const;
};

} // namespace headrace
