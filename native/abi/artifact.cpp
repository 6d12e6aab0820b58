// The facts behind artifact.h, from what CMake defines for it: HR_ARTIFACT, HR_THREADS, HR_WEBGPU. The only file
// of the engine that asks whether this is WebAssembly.
#include "abi/artifact.h"

#if HR_WEBGPU
#include <ggml-webgpu.h>
#endif
#if HR_WEBGPU == 1
#include "webgpu/faults.h"
#endif

#include <algorithm>
#include <thread>

namespace headrace {

#if HR_WEBGPU
namespace {

ggml_backend_dev_t webgpu_device() {
    const ggml_backend_reg_t backend = ggml_backend_webgpu_reg();
    return ggml_backend_reg_dev_count(backend) > 0 ? ggml_backend_reg_dev_get(backend, 0) : nullptr;
}

#if HR_WEBGPU == 1
std::optional<GpuFault> webgpu_fault() {
    const std::optional<webgpu::Fault> fault = webgpu::take_fault();
    if (!fault) {
        return std::nullopt;
    }
    switch (fault->kind) {
        case webgpu::FaultKind::lost: return GpuFault{GpuFault::Kind::lost, fault->message};
        case webgpu::FaultKind::out_of_memory: return GpuFault{GpuFault::Kind::out_of_memory, fault->message};
        case webgpu::FaultKind::failed: break;
    }
    return GpuFault{GpuFault::Kind::failed, fault->message};
}

GpuCounters webgpu_counters() {
    const webgpu::Counters & counters = webgpu::counters();
    return {.dispatches    = counters.dispatches,
            .submits       = counters.submits,
            .spared_waits  = counters.spared_waits,
            .bind_groups   = counters.bind_groups,
            .waits         = counters.waits,
            .maps          = counters.maps,
            .writes        = counters.writes,
            .written_bytes = counters.written,
            .read_bytes    = counters.read};
}

#endif

} // namespace
#endif

const char * artifact_name() {
    return HR_ARTIFACT;
}

Host host_facts() {
    Host host;
#ifdef __EMSCRIPTEN__
    host.memory_map = false;
#endif
#if HR_THREADS
    host.max_threads     = 256;
    host.default_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
#endif
#if HR_WEBGPU
    host.gpu.device = webgpu_device;
#endif
#if HR_WEBGPU == 1
    host.gpu.take_fault = webgpu_fault;
    host.gpu.counters   = webgpu_counters;
#endif
    return host;
}

} // namespace headrace
