// What last went wrong on the GPU, for whoever catches the abort that ggml makes of it.
//
// ggml-webgpu knows one answer to every error, GGML_ABORT, with the cause as text. webgpu_cpp.cpp notes the cause here
// before ggml learns of it. Not a log: only the first fault since the last question is kept, the others follow from it.
#pragma once

#include <optional>
#include <string>

namespace headrace::webgpu {

enum class FaultKind { lost, out_of_memory, failed };

struct Fault {
    FaultKind   kind;
    std::string message;
};

std::optional<Fault> take_fault();

// What was asked of the GPU since the program began.
struct Counters {
    double dispatches   = 0;
    double submits      = 0;
    double spared_waits = 0; // waits of ggml for a queue that was idle
    double waits        = 0; // times that the engine waited for the GPU, maps included
    double maps         = 0; // round trips that brought data back
    double writes       = 0;
    double bind_groups  = 0; // made; ggml asks for one for each dispatch
    double written      = 0; // bytes
    double read         = 0; // bytes
};

const Counters & counters();

} // namespace headrace::webgpu
