#include "engine/model_ops.h"
#include <doctest/doctest.h>
#include <ggml-cpu.h>
#include <ggml-cpp.h>
#include <cstdio>
#include <cstdlib>
#include <chrono>
using namespace headrace;
TEST_CASE("scratch: list") {
    const char * path = std::getenv("SCRATCH_MODEL");
    if (!path) return;
    const Model model({path}, true, nullptr);
    const auto ops = model_ops(model, [](const ggml_tensor &) { return true; });
    ggml_backend_ptr a(ggml_backend_cpu_init()), b(ggml_backend_cpu_init());
    ggml_backend_cpu_set_n_threads(a.get(), 1); ggml_backend_cpu_set_n_threads(b.get(), 1);
    for (const GraphOp & op : ops) {
        const auto t0 = std::chrono::steady_clock::now();
        const auto v = try_op(op, a.get(), b.get());
        const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - t0).count();
        size_t bytes = 0; for (auto & o : op.operands) bytes += o.bytes();
        std::printf("%-90s %s %.1f ms %zu KB\n", signature(op).c_str(), v ? (v->ok ? "ok" : v->text().c_str()) : "SKIPPED", ms, bytes / 1024);
    }
    std::printf("%zu signatures\n", ops.size());
}
