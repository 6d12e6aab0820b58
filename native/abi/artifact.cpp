// The facts behind artifact.h, from what CMake defines for it: HR_ARTIFACT and HR_THREADS. The only file
// of the engine that asks whether this is WebAssembly.
#include "abi/artifact.h"

#include <algorithm>
#include <thread>

namespace headrace {

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
    return host;
}

} // namespace headrace
