// What is written down of a graph: pairs, places, strides; and names that are the same for the same kernels.
#include "engine/graph_recorder.h"
#include "tests/cpu_graph.h"

#include <doctest/doctest.h>
#include <ggml-backend.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace headrace;

namespace {

// A graph under a recorder.
class Bench : public CpuGraph {
  public:
    ggml_tensor * input(int64_t ne0, int64_t ne1 = 1, int64_t ne2 = 1, ggml_type type = GGML_TYPE_F32) {
        return add_input(type, ne0, ne1, ne2);
    }

    // The signatures of what was seen while `outputs` were computed.
    std::vector<std::string> record(
        const std::vector<ggml_tensor *> & outputs,
        GraphRecorder::Concerns            concerns = [](const ggml_tensor &) { return true; }) {
        GraphRecorder recorder(std::move(concerns));
        allocate(outputs, GraphRecorder::on_node, &recorder);
        for (ggml_tensor * tensor : inputs()) {
            ggml_backend_tensor_memset(tensor, 0, 0, ggml_nbytes(tensor));
        }
        recorder.begin();
        compute_graph();
        ops = recorder.ops();
        std::vector<std::string> names;
        for (const GraphOp & op : ops) {
            names.push_back(signature(op));
        }
        return names;
    }

    std::vector<GraphOp> ops; // the last ones seen
};

using Names = std::vector<std::string>;

} // namespace

TEST_CASE("graph_recorder: a norm and the product after it are one operation") {
    Bench          bench;
    ggml_context * context = bench.context();
    ggml_tensor *  norm    = ggml_rms_norm(context, bench.input(96, 3), 0.5f);
    const Names    names   = bench.record({ggml_mul(context, norm, bench.input(96))});
    CHECK(names == Names{"RMS_NORM+MUL p0=0.5 f32[96] × f32[96] → f32 =0"});
    CHECK(bench.ops.front().steps.size() == 2);
}

TEST_CASE(
    "graph_recorder: a norm that is read elsewhere too, or is multiplied later, is an operation of its own") {
    SUBCASE("read twice") {
        Bench          bench;
        ggml_context * context = bench.context();
        ggml_tensor *  norm    = ggml_rms_norm(context, bench.input(96, 3), 0.5f);
        ggml_tensor *  product = ggml_mul(context, norm, bench.input(96));
        const Names    names   = bench.record({ggml_add(context, product, norm)});
        CHECK(std::count(names.begin(), names.end(), "RMS_NORM p0=0.5 f32[96] → f32 =0") == 1);
        CHECK(std::count(names.begin(), names.end(), "MUL f32 × f32~1 → f32") == 1);
    }
    SUBCASE("read by nobody") {
        Bench       bench;
        const Names names = bench.record({ggml_rms_norm(bench.context(), bench.input(96, 3), 0.5f)});
        CHECK(names == Names{"RMS_NORM p0=0.5 f32[96] → f32 =0"});
    }
    SUBCASE("multiplied with something that is computed in between") {
        Bench          bench;
        ggml_context * context = bench.context();
        ggml_tensor *  norm    = ggml_rms_norm(context, bench.input(96, 3), 0.5f);
        const Names    names   = bench.record({ggml_mul(context, norm, ggml_sqr(context, bench.input(96)))});
        CHECK(names.size() == 3);
        CHECK(names[0] == "RMS_NORM p0=0.5 f32[96] → f32 =0");
    }
    SUBCASE("multiplied as a whole with what it would be broadcast to") {
        Bench          bench;
        ggml_context * context = bench.context();
        ggml_tensor *  norm    = ggml_rms_norm(context, bench.input(96), 0.5f);
        const Names    names   = bench.record({ggml_mul(context, bench.input(96, 3), norm)});
        CHECK(names.front() == "RMS_NORM p0=0.5 f32[96] → f32 =0");
    }
}

TEST_CASE(
    "graph_recorder: an output in the place of an input, and inputs that lie over each other, are told") {
    Bench          bench;
    ggml_context * context = bench.context();
    ggml_tensor *  merged  = ggml_sqr(context, bench.input(80, 3));
    ggml_tensor *  gate    = ggml_view_2d(context, merged, 40, 3, merged->nb[1], 0);
    ggml_tensor *  up      = ggml_view_2d(context, merged, 40, 3, merged->nb[1], 160);
    const Names    names   = bench.record({ggml_sqrt(context, ggml_swiglu_split(context, gate, up))});
    REQUIRE(names.size() == 3);
    CHECK(names[0] == "SQR f32 → f32 =0");
    CHECK(names[1] == "SWIGLU f32@+ × f32@+o &0 → f32");
    CHECK(names[2] == "SQRT f32 → f32 =0");
    const GraphOp & glu = bench.ops[1];
    CHECK(glu.source(0, 0)->block == glu.source(0, 1)->block);
    CHECK(glu.source(0, 1)->offset == 160);
    CHECK(glu.blocks == 2);
}

TEST_CASE("graph_recorder: only the device's nodes are written down, and no views") {
    Bench          bench;
    ggml_context * context = bench.context();
    ggml_tensor *  square  = ggml_sqr(context, bench.input(96, 3));
    ggml_tensor *  turned  = ggml_cont(context, ggml_transpose(context, square));
    const Names    names =
        bench.record({turned}, [](const ggml_tensor & node) { return node.op != GGML_OP_SQR; });
    CHECK(names == Names{"CONT f32@10 → f32"});
}

TEST_CASE(
    "graph_recorder: products differ by few columns, and weights are cut down to what a kernel can tell") {
    const auto name = [](int64_t length, int64_t rows, int64_t columns) {
        Bench          bench;
        ggml_context * context = bench.context();
        const Names names = bench.record({ggml_mul_mat(context, bench.input(length, rows, 1, GGML_TYPE_Q4_1),
                                                       bench.input(length, columns))});
        return names.front();
    };
    CHECK(name(64, 4096, 1) == "MUL_MAT q4_1[64,64] × f32[64,1] → f32");
    CHECK(name(64, 4099, 4) == "MUL_MAT q4_1[64,67] × f32[64,4] → f32");
    CHECK(name(64, 20, 5) == "MUL_MAT q4_1[64,20] × f32[64,5+] → f32");
    CHECK(name(64, 20, 5) == name(64, 20, 33));
    CHECK(name(4128, 64, 1) == "MUL_MAT q4_1[2080,64] × f32[2080,1] → f32");
}

TEST_CASE("graph_recorder: of operations of one name that with the most data is kept") {
    Bench          bench;
    ggml_context * context = bench.context();
    const Names    names =
        bench.record({ggml_sqr(context, bench.input(8, 2)), ggml_sqr(context, bench.input(8, 9)),
                      ggml_sqr(context, bench.input(8, 4))});
    CHECK(names.size() == 1);
    CHECK(bench.ops.front().output().ne[1] == 9);
}

TEST_CASE("graph_recorder: attention of few queries is also written down over a long context") {
    const auto names = [](int64_t queries, int64_t context_size) {
        Bench          bench;
        ggml_context * context = bench.context();
        const auto     cache   = [&] {
            return ggml_permute(context, bench.input(64, 2, context_size, GGML_TYPE_F16), 0, 2, 1, 3);
        };
        ggml_tensor * mask = bench.input(context_size, queries, 1, GGML_TYPE_F16);
        return bench.record({ggml_flash_attn_ext(context, bench.input(64, queries, 4), cache(), cache(), mask,
                                                 0.125f, 0, 0)});
    };
    const std::string tail = "f16[64,256,2]@021 × f16[64,256,2]@021 × f16 → f32";
    CHECK(names(20, 256) == Names{"FLASH_ATTN_EXT p0=0.125 f32[64,20+,4,1] × " + tail});
    const Names few = names(3, 256);
    REQUIRE(few.size() == 2);
    CHECK(few[0] == "FLASH_ATTN_EXT p0=0.125 f32[64,<20,4,1] × " + tail);
    CHECK(few[1] ==
          "FLASH_ATTN_EXT p0=0.125 f32[64,<20,4,1] × f16[64,1280,2]@021 × f16[64,1280,2]@021 × f16 → f32");
    CHECK(names(1, 256) == few);
    CHECK(names(3, 40).size() == 1);
}
