// A model on a GPU has its operations recorded and tested when it is loaded; one that is not costs nothing.
#include "engine/model_ops.h"

#include "broken_gpu.h"
#include "engine/engine.h"
#include "engine/op_watch.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <variant>

using namespace headrace;

namespace {

const std::string MODEL = std::string(HR_TEST_DATA) + "/moe-trained-q4_k_m.gguf";

Model load(ggml_backend_dev_t device, int64_t layers = -1) {
    return Model({MODEL}, false, nullptr, Placement{device, layers});
}

void clear(ggml_tensor & node, const std::string &) {
    std::memset(node.data, 0, ggml_nbytes(&node));
}

size_t count(const std::vector<GraphOp> & ops, ggml_op op) {
    return static_cast<size_t>(
        std::count_if(ops.begin(), ops.end(), [&](const GraphOp & other) { return other.last().op == op; }));
}

// The GPU that an engine under test finds.
const BrokenGpu * present = nullptr;

struct Present {
    explicit Present(const BrokenGpu & gpu) { present = &gpu; }
    ~Present() { present = nullptr; }
};

Host host_with_gpu() {
    Host host;
    host.memory_map = false;
    host.gpu.device = [] { return present->device(); };
    return host;
}

LoadOptions gpu_options(const std::string & self_test = "auto") {
    LoadOptions options;
    options.backend       = "webgpu";
    options.context_size  = 256;
    options.gpu_self_test = self_test;
    return options;
}

// What an engine says of its GPU.
GpuUse use_of(const LoadOptions & options, const ProvenOps & proven = {}) {
    Engine engine(host_with_gpu());
    engine.load({{MODEL}, {}, {}}, options, proven, nullptr);
    const auto & ready = std::get<ReadyEvent>(engine.events().front());
    REQUIRE(ready.gpu);
    return *ready.gpu;
}

} // namespace

TEST_CASE("model_ops: a model that is not on a GPU needs no test, nor a GPU") {
    const SelfTestReport report = test_model_on_gpu(load(nullptr), {});
    CHECK(report.tested + report.known + report.unchecked.size() == 0);
}

TEST_CASE("model_ops: kernels for one token, for few and for many are all recorded, each once") {
    const BrokenGpu            gpu;
    const std::vector<GraphOp> ops = model_ops(load(gpu.device()), is_on_gpu);
    std::vector<std::string>   names;
    for (const GraphOp & op : ops) {
        names.push_back(signature(op));
    }
    std::sort(names.begin(), names.end());
    CHECK(std::unique(names.begin(), names.end()) == names.end());
    const auto has = [&](const std::string & part) {
        return std::any_of(names.begin(), names.end(),
                           [&](const std::string & name) { return name.find(part) == 0; });
    };
    for (const char * columns : {"1", "3", "5+"}) {
        CAPTURE(columns);
        CHECK(has("MUL_MAT q5_K[256,64] × f32[256," + std::string(columns) + "]"));
    }
    CHECK(has("MUL_MAT q6_K[256,64] × f32[256,1]")); // the logits
    CHECK(has("MUL_MAT q6_K[256,64] × f32[256,3]")); // of several slots
    CHECK(has("MUL_MAT_ID q4_K[256,64,8] × f32[256,1,1]"));
    CHECK(has("MUL_MAT_ID q4_K[256,64,8] × f32[256,1,2+]"));
    CHECK(has("FLASH_ATTN_EXT p0=0.125 p3=10 f32[64,<20,4,1] × f16[64,256,2]"));
    CHECK(has("FLASH_ATTN_EXT p0=0.125 p3=10 f32[64,<20,4,1] × f16[64,1280,2]"));
    CHECK(has("FLASH_ATTN_EXT p0=0.125 p3=10 f32[64,20+,4,1]"));
    CHECK(has("RMS_NORM+MUL"));
    CHECK(has("SET_ROWS f32[128] × i64 × f16[128] → f16 =2"));
    CHECK(ops.size() <= 48);
}

TEST_CASE("model_ops: slots with caches of their own need attention over several at once") {
    const BrokenGpu            gpu;
    const Model                model = load(gpu.device());
    const std::vector<GraphOp> one = model_ops(model, is_on_gpu), several = model_ops(model, is_on_gpu, true);
    const auto                 over_two = [](const GraphOp & op) {
        return signature(op).find("f32[64,<20,4,2] × f16[64,256,2,2]") != std::string::npos;
    };
    CHECK(std::none_of(one.begin(), one.end(), over_two));
    CHECK(std::count_if(several.begin(), several.end(), over_two) == 1);
    CHECK(several.size() <= one.size() + 3);
    CHECK(test_model_on_gpu(model, {}, true).tested == several.size());
}

TEST_CASE("model_ops: the names are the same each time") {
    const BrokenGpu one, other;
    const auto      names = [](const BrokenGpu & gpu) {
        std::vector<std::string> signatures;
        for (const GraphOp & op : model_ops(load(gpu.device()), is_on_gpu)) {
            signatures.push_back(signature(op));
        }
        return signatures;
    };
    CHECK(names(one) == names(other));
}

TEST_CASE("model_ops: only what is on the GPU is tested") {
    const auto      no_experts = [](const ggml_tensor & node) { return node.op != GGML_OP_MUL_MAT_ID; };
    const BrokenGpu gpu("MUL_MAT_ID", clear, no_experts);
    const Model     model = load(gpu.device());
    CHECK(count(model_ops(model, is_on_gpu), GGML_OP_MUL_MAT_ID) == 0);
    const SelfTestReport report = test_model_on_gpu(model, {});
    CHECK(report.tested > 20);
    CHECK(report.unchecked.empty());
}

TEST_CASE("model_ops: an engine tells what it found out about its GPU") {
    const BrokenGpu gpu;
    const Present   here(gpu);
    const GpuUse    use = use_of(gpu_options());
    CHECK(use.description == "a GPU that is broken");
    CHECK(use.layers == use.layers_total);
    CHECK(use.self_test.tested > 30);
    CHECK(use.self_test.known == 0);
    CHECK(use.self_test.unchecked.empty());
    CHECK(use.self_test.proven.size() == use.self_test.tested);

    const ProvenOps known(use.self_test.proven.begin(), use.self_test.proven.end());
    const GpuUse    again = use_of(gpu_options(), known);
    CHECK(again.self_test.tested == 0);
    CHECK(again.self_test.known == known.size());
    CHECK(use_of(gpu_options("force"), known).self_test.tested == known.size());
    CHECK(use_of(gpu_options("skip")).self_test.proven.empty());
    LoadOptions few = gpu_options("skip");
    few.gpu_layers  = 2;
    CHECK(use_of(few).layers == 2);
}

TEST_CASE("model_ops: an engine does not load onto a GPU that is wrong, unless nobody asks (case E7)") {
    for (const char * op : {"MUL_MAT", "MUL_MAT_ID", "FLASH_ATTN_EXT", "ROPE", "SWIGLU", "SET_ROWS", "MUL"}) {
        CAPTURE(op);
        const BrokenGpu gpu(op, clear);
        const Present   here(gpu);
        try {
            use_of(gpu_options());
            FAIL("nothing was found");
        } catch (const Error & error) {
            CHECK(error.code == ErrorCode::gpu_mismatch);
            CHECK(std::string(error.what()).find(op) != std::string::npos);
        }
        CHECK(use_of(gpu_options("skip")).self_test.tested == 0);
    }
}

TEST_CASE("model_ops: an engine on the CPU has no GPU to tell of") {
    Engine      engine(host_with_gpu());
    LoadOptions options = gpu_options();
    options.backend     = "cpu";
    engine.load({{MODEL}, {}, {}}, options, {}, nullptr);
    CHECK_FALSE(std::get<ReadyEvent>(engine.events().front()).gpu);
}
