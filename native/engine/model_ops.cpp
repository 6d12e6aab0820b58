// The passes and backends behind model_ops.h.
#include "engine/model_ops.h"

#include "engine/graph_passes.h"
#include "engine/op_watch.h"

#include <ggml-cpp.h>
#include <ggml-cpu.h>

#include <algorithm>
#include <chrono>
#include <memory>

namespace headrace {

namespace {

// Products by a matrix have kernels for up to four columns, attention for fewer than 20 queries; the largest
// tiles are of 32. The longest is first: of operations that are the same at all lengths, it is the one kept.
constexpr int32_t FEW       = 3;
constexpr int32_t LENGTHS[] = {33, FEW, 1};

// Of the first GPU that a node lies on; null: of none.
struct GpuSeen {
    ggml_backend_dev_t device = nullptr;

    bool operator()(const ggml_tensor & node) {
        if (!is_on_gpu(node)) {
            return false;
        }
        device = device ? device : device_of(node);
        return true;
    }
};

double now_ms() {
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

} // namespace

std::vector<GraphOp> model_ops(const Model & model, const GraphRecorder::Concerns & concerns, bool slots) {
    using Kind              = GraphPasses::Kind;
    const int32_t sequences = slots && model.is_causal() ? 2 : 1;
    GraphRecorder recorder(concerns);
    GraphPasses   passes(model, {LENGTHS[0], FEW, sequences}, GraphRecorder::on_node, &recorder);
    const auto    pass = [&](Kind kind, const GraphPasses::Batch & batch) {
        recorder.begin();
        const std::string failure = passes.run(kind, batch);
        if (!failure.empty()) {
            throw Error(ErrorCode::internal, "the model's graphs cannot be looked at: " + failure);
        }
    };
    const auto run = [&](Kind kind) {
        for (const int32_t length : LENGTHS) {
            // As of several slots; a long pass is of a single prompt.
            pass(kind, {length, length <= FEW ? length : 1});
        }
    };
    if (!passes.remembers()) {
        run(Kind::embed);
        return recorder.ops();
    }
    if (llama_model_has_encoder(model.get())) {
        run(Kind::encode);
    }
    run(Kind::decode);
    if (sequences > 1) {
        // More tokens than matrix products have special kernels for: those were seen already.
        pass(Kind::decode, {2 * FEW, 1, sequences});
    }
    return recorder.ops();
}

SelfTestReport test_model_on_gpu(const Model & model, const std::set<std::string> & known, bool slots) {
    const double               start = now_ms();
    GpuSeen                    seen;
    const std::vector<GraphOp> ops = model_ops(model, std::ref(seen), slots);
    if (ops.empty()) {
        return {};
    }
    ggml_backend_ptr     device(ggml_backend_dev_init(seen.device, nullptr));
    ggml_backend_ptr     reference(ggml_backend_cpu_init());
    const ComputeThreads thread = start_compute_threads(1); // last, to end first
    if (!device || !reference) {
        throw Error(ErrorCode::gpu_failed, "the GPU cannot be opened for its self-test");
    }
    ggml_backend_cpu_set_n_threads(reference.get(), 1);
    ggml_backend_cpu_set_threadpool(reference.get(), thread.get());
    SelfTestReport report = run_self_test(ops, device.get(), reference.get(), known);
    report.ms             = now_ms() - start; // with the passes
    return report;
}

} // namespace headrace
