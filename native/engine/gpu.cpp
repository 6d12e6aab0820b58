// See gpu.h.
#include "engine/gpu.h"

namespace headrace {

ggml_backend_dev_t Gpu::chosen(const std::string & backend) const {
    if (backend == "cpu") {
        return nullptr;
    }
    if (!device) {
        throw Error(ErrorCode::environment_unsupported, "this build of the engine has no WebGPU backend",
                    {{"missing", "WebGPU backend"}});
    }
    if (const ggml_backend_dev_t found = device()) {
        return found;
    }
    throw Error(ErrorCode::environment_unsupported,
                "the browser offers no WebGPU adapter with 16-bit floats (shader-f16)",
                {{"missing", "shader-f16"}});
}

void Gpu::forget_fault() const {
    if (take_fault) {
        take_fault();
    }
}

Error Gpu::explain(const Error & error) const {
    const std::optional<GpuFault> fault = take_fault ? take_fault() : std::nullopt;
    if (!fault) {
        return error;
    }
    switch (fault->kind) {
        case GpuFault::Kind::lost:
            return Error(ErrorCode::device_lost, "the GPU went away: " + fault->message);
        case GpuFault::Kind::out_of_memory:
            return Error(ErrorCode::out_of_memory, "the GPU has no memory for it: " + fault->message,
                         {{"device", "gpu"}});
        case GpuFault::Kind::failed: break;
    }
    return Error(ErrorCode::gpu_failed, "the GPU reported an error: " + fault->message);
}

} // namespace headrace
