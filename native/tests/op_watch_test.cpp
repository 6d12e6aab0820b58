// An op that writes nothing, or not everything, is found; an op that does its work is not (case G13).
#include "engine/op_watch.h"
#include "tests/cpu_graph.h"

#include <doctest/doctest.h>
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml-cpu.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

using namespace headrace;

namespace {

constexpr int64_t WIDTH = 64;

// A graph under a watch.
class Bench : public CpuGraph {
  public:
    ggml_tensor * input(ggml_type type = GGML_TYPE_F32) { return add_input(type, WIDTH); }

    OpWatch::Stepping stepping = OpWatch::Stepping::single;

    // The values of `output` after a pass under the watch, with all inputs at `value`, whole numbers at 1.
    std::vector<float> compute(ggml_tensor * output, OpWatch & watch, float value = 0.5f) {
        allocate({output}, OpWatch::on_node, &watch);
        const std::vector<float>   values(WIDTH, value);
        const std::vector<int32_t> ones(WIDTH, 1);
        for (ggml_tensor * tensor : inputs()) {
            const bool whole = tensor->type == GGML_TYPE_I32;
            ggml_backend_tensor_set(tensor, whole ? static_cast<const void *>(ones.data()) : values.data(), 0,
                                    ggml_nbytes(tensor));
        }
        watch.begin("decode", stepping);
        compute_graph();
        std::vector<float> result(static_cast<size_t>(ggml_nelements(output)));
        ggml_backend_tensor_get(output, result.data(), 0, ggml_nbytes(output));
        return result;
    }
};

void write_nothing(ggml_tensor *, const ggml_tensor *, int, int, void *) {}

// As many values as `user` says.
void write_some(ggml_tensor * output, const ggml_tensor * input, int thread, int, void * user) {
    if (thread == 0) {
        for (int64_t i = 0; i < *static_cast<int64_t *>(user); i++) {
            static_cast<float *>(output->data)[i] = 2 * static_cast<const float *>(input->data)[i];
        }
    }
}

Error error_of(const OpWatch & watch) {
    try {
        watch.check();
    } catch (const Error & error) {
        return error;
    }
    return Error(ErrorCode::internal, "nothing was found");
}

std::string detail(const Error & error, const std::string & name) {
    for (const auto & [key, value] : error.detail) {
        if (key == name) {
            return std::get<std::string>(value);
        }
    }
    return "";
}

} // namespace

TEST_CASE("op_watch: an op that writes nothing is found, wherever the allocator puts its output") {
    for (bool in_place : {false, true}) {
        Bench         bench;
        OpWatch       watch;
        ggml_tensor * before = ggml_sqr(bench.context(), bench.input());
        ggml_tensor * hole   = ggml_map_custom1(bench.context(), before, write_nothing, 1, nullptr);
        ggml_set_name(hole, "hole");
        // Unless its input is read once more, the output takes the input's place.
        ggml_tensor * after =
            in_place ? ggml_sqrt(bench.context(), hole) : ggml_add(bench.context(), hole, before);
        bench.compute(after, watch);
        const Error error = error_of(watch);
        CHECK(error.code == ErrorCode::kernel_missing);
        CHECK(detail(error, "op") == "MAP_CUSTOM1");
        CHECK(detail(error, "node") == "hole");
        CHECK(detail(error, "phase") == "decode");
        CHECK(std::string(error.what()).find("64 of 64") != std::string::npos);
    }
}

TEST_CASE("op_watch: an op that leaves part of its output is found") {
    for (int64_t written : {int64_t{1}, WIDTH / 2, WIDTH - 1}) {
        Bench   bench;
        OpWatch watch;
        bench.compute(ggml_map_custom1(bench.context(), bench.input(), write_some, 1, &written), watch);
        CHECK(error_of(watch).code == ErrorCode::kernel_missing);
    }
}

TEST_CASE("op_watch: a graph that is computed has the result it has without a watch") {
    Bench         bench;
    OpWatch       watch;
    int64_t       all   = WIDTH;
    ggml_tensor * input = bench.input();
    ggml_tensor * twice =
        ggml_map_custom1(bench.context(), ggml_sqr(bench.context(), input), write_some, 1, &all);
    ggml_tensor * half   = ggml_view_1d(bench.context(), twice, WIDTH / 2, 0);
    ggml_tensor * other  = ggml_view_1d(bench.context(), twice, WIDTH / 2, WIDTH / 2 * sizeof(float));
    const auto    result = bench.compute(ggml_swiglu_split(bench.context(), half, other), watch);
    watch.check();
    const float x = 2 * 0.25f;
    for (float value : result) {
        CHECK(value == doctest::Approx(x / (1 + std::exp(-x)) * x).epsilon(1e-3));
    }
    CHECK(watch.proven() == 3);
}

TEST_CASE("op_watch: numbers that are none, computed from inputs that are none, are no missing kernel") {
    // The last one is the very pattern that outputs are filled with.
    for (uint32_t bits : {0x7FC00000u, 0xFFFFFFFFu, 0x7FA57FA5u}) {
        const float   value = std::bit_cast<float>(bits);
        Bench         bench;
        OpWatch       watch;
        ggml_tensor * input = bench.input();
        const auto    result =
            bench.compute(ggml_add(bench.context(), ggml_sqr(bench.context(), input), input), watch, value);
        watch.check();
        CHECK(std::isnan(result.front()));
        CHECK(watch.proven() == 2);
    }
}

TEST_CASE("op_watch: an op that its device does not support is named, though it is never computed") {
    Bench   bench;
    OpWatch watch([](const ggml_tensor & node) { return node.op != GGML_OP_GLU; });
    bench.compute(ggml_swiglu_split(bench.context(), bench.input(), bench.input()), watch);
    const Error error = error_of(watch);
    CHECK(error.code == ErrorCode::kernel_missing);
    CHECK(detail(error, "op") == "GLU");
    CHECK(detail(error, "kernel") == "SWIGLU");
    CHECK(detail(error, "inputs") == "f32 × f32");
    CHECK(detail(error, "backend") == "CPU");
}

TEST_CASE("op_watch: an op outside ggml's list is not supported, though the CPU says yes to it") {
    Bench         bench;
    OpWatch       watch;
    ggml_tensor * output = ggml_swiglu_split(bench.context(), bench.input(), bench.input());
    bench.compute(output, watch);
    CHECK(OpWatch::device_supports(*output));
    ggml_tensor unknown  = *output;
    unknown.op_params[0] = GGML_GLU_OP_COUNT;
    CHECK(ggml_backend_dev_supports_op(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU), &unknown));
    CHECK_FALSE(OpWatch::device_supports(unknown));
    unknown.op = GGML_OP_COUNT;
    CHECK_FALSE(OpWatch::device_supports(unknown));
}

TEST_CASE("op_watch: ops of a kind are counted, views are none, and a product tells its inner loop") {
    Bench         bench;
    OpWatch       watch;
    ggml_tensor * input   = bench.input();
    ggml_tensor * rows    = ggml_reshape_2d(bench.context(), bench.input(GGML_TYPE_Q8_0), WIDTH / 2, 2);
    ggml_tensor * columns = ggml_reshape_2d(
        bench.context(), ggml_sqr(bench.context(), ggml_sqr(bench.context(), input)), WIDTH / 2, 2);
    bench.compute(ggml_mul_mat(bench.context(), rows, columns), watch);
    watch.check();
    REQUIRE(watch.ops().size() == 2);
    CHECK(watch.ops()[0].op == "SQR");
    CHECK(watch.ops()[0].count == 2);
    CHECK(watch.ops()[1].op == "MUL_MAT");
    CHECK(watch.ops()[1].inputs == "q8_0 × f32");
    CHECK(watch.ops()[1].output == "f32");
    CHECK(watch.ops()[1].backend == "CPU");
    CHECK(watch.ops()[1].kernel == "vec_dot q8_0 × q8_0");
}

TEST_CASE(
    "op_watch: rows and copies that arrive in another tensor are seen, and change nothing but their place") {
    Bench            bench;
    OpWatch          watch;
    constexpr size_t COLUMNS = WIDTH / 4;
    ggml_context *   context = bench.context();
    ggml_tensor *    store   = bench.input();
    ggml_tensor *    copied  = ggml_cpy(context, bench.input(), store);
    ggml_tensor *    row     = ggml_scale(context, ggml_view_1d(context, bench.input(), COLUMNS, 0), 2);
    ggml_tensor *    index   = ggml_view_1d(context, bench.input(GGML_TYPE_I32), 1, 0);
    const auto       result  = bench.compute(
        ggml_set_rows(context, ggml_reshape_2d(context, copied, COLUMNS, 4), row, index), watch);
    watch.check();
    CHECK(watch.proven() == 3);
    for (size_t i = 0; i < result.size(); i++) {
        CHECK(result[i] == (i / COLUMNS == 1 ? 1.0f : 0.5f));
    }
}

TEST_CASE("op_watch: rows and copies that do not arrive are found") {
    for (bool rows : {false, true}) {
        ggml_context_ptr context(ggml_init({1 << 20, nullptr, true}));
        ggml_tensor *    store = ggml_new_tensor_2d(context.get(), GGML_TYPE_F16, WIDTH, 4);
        ggml_tensor *    whole = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, WIDTH, 4);
        ggml_tensor *    row   = ggml_new_tensor_1d(context.get(), GGML_TYPE_F32, WIDTH);
        ggml_tensor *    index = ggml_new_tensor_1d(context.get(), GGML_TYPE_I32, 1);
        ggml_tensor *    node =
            rows ? ggml_set_rows(context.get(), store, row, index) : ggml_cpy(context.get(), whole, store);
        ggml_backend_buffer_ptr memory(
            ggml_backend_alloc_ctx_tensors_from_buft(context.get(), ggml_backend_cpu_buffer_type()));
        node->flags |= GGML_TENSOR_FLAG_COMPUTE;
        OpWatch      watch;
        void * const home = node->data;
        watch.begin("prefill");
        CHECK(OpWatch::on_node(node, true, &watch));
        CHECK_FALSE(OpWatch::on_node(node, false, &watch)); // and nobody has computed it in between
        CHECK(node->data == home);
        CHECK(error_of(watch).code == ErrorCode::kernel_missing);
    }
}

TEST_CASE("op_watch: a norm and its product can be left to one kernel, whose output is seen") {
    for (auto stepping : {OpWatch::Stepping::single, OpWatch::Stepping::fused}) {
        Bench   bench;
        OpWatch watch;
        bench.stepping         = stepping;
        ggml_context * context = bench.context();
        ggml_tensor *  norm    = ggml_rms_norm(context, ggml_sqr(context, bench.input()), 1e-6f);
        const auto     result  = bench.compute(ggml_mul(context, norm, bench.input()), watch);
        watch.check();
        CHECK(watch.ops().size() == 3);
        CHECK(watch.proven() == (stepping == OpWatch::Stepping::single ? 3 : 2));
        for (float value : result) {
            CHECK(value == doctest::Approx(0.5));
        }
    }
}
