// The self-test of GPUs lets a right backend pass and catches a wrong one, whatever it does wrong (case E7).
#include "engine/gpu_self_test.h"

#include "broken_gpu.h"
#include "engine/error.h"
#include "engine/model_ops.h"

#include <doctest/doctest.h>
#include <ggml-cpp.h>
#include <ggml-cpu.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

using namespace headrace;

namespace {

const std::vector<GraphOp> & tiny_model_ops() {
    static const std::vector<GraphOp> ops = [] {
        const Model model({std::string(HR_TEST_DATA) + "/moe-trained-q4_k_m.gguf"}, true, nullptr);
        return model_ops(model, [](const ggml_tensor &) { return true; });
    }();
    return ops;
}

// Operations that the tiny model does not have, each described from a tensor of its own.
class OpBench {
  public:
    OpBench() : context_(ggml_init({1 << 20, nullptr, true})) {}

    ggml_context * context() { return context_.get(); }

    ggml_tensor * input(ggml_type type, int64_t ne0, int64_t ne1 = 1, int64_t ne2 = 1, int64_t ne3 = 1) {
        return ggml_new_tensor_4d(context_.get(), type, ne0, ne1, ne2, ne3);
    }

    void add(ggml_tensor * node) { nodes_.push_back(node); }

    std::vector<GraphOp> describe() {
        memory_.reset(
            ggml_backend_alloc_ctx_tensors_from_buft(context_.get(), ggml_backend_cpu_buffer_type()));
        std::vector<GraphOp> ops;
        for (const ggml_tensor * node : nodes_) {
            ops.push_back(shrink(describe_op(*node)));
        }
        return ops;
    }

  private:
    ggml_context_ptr           context_;
    ggml_backend_buffer_ptr    memory_;
    std::vector<ggml_tensor *> nodes_;
};

std::vector<GraphOp> other_ops() {
    constexpr ggml_type F32 = GGML_TYPE_F32, F16 = GGML_TYPE_F16, I32 = GGML_TYPE_I32;
    OpBench             bench;
    ggml_context *      context = bench.context();
    const auto          rows    = [&] { return bench.input(F32, 96, 7); };
    bench.add(ggml_scale(context, rows(), 0.25f));
    bench.add(ggml_norm(context, rows(), 1e-5f));
    bench.add(ggml_l2_norm(context, rows(), 1e-6f));
    bench.add(ggml_rms_norm(context, rows(), 1e-6f));
    bench.add(ggml_gelu(context, rows()));
    bench.add(ggml_silu_inplace(context, rows()));
    bench.add(ggml_sigmoid(context, rows()));
    bench.add(ggml_tanh(context, rows()));
    bench.add(ggml_geglu_split(context, rows(), rows()));
    bench.add(ggml_swiglu(context, rows()));
    bench.add(ggml_sub(context, rows(), rows()));
    bench.add(ggml_sqr(context, rows()));
    bench.add(ggml_sqrt(context, rows()));
    bench.add(ggml_log(context, rows()));
    bench.add(ggml_sin(context, rows()));
    bench.add(ggml_cos(context, rows()));
    bench.add(ggml_cumsum(context, rows()));
    bench.add(ggml_concat(context, rows(), rows(), 1));
    bench.add(ggml_repeat(context, bench.input(F32, 96, 1), rows()));
    bench.add(ggml_cont(context, ggml_transpose(context, rows())));
    bench.add(ggml_cpy(context, rows(), bench.input(F16, 96, 7)));
    bench.add(ggml_cpy(context, rows(), bench.input(GGML_TYPE_Q8_0, 96, 7)));
    bench.add(ggml_argmax(context, rows()));
    bench.add(ggml_top_k(context, rows(), 5));
    bench.add(
        ggml_add_id(context, bench.input(F32, 96, 2, 7), bench.input(F32, 96, 8), bench.input(I32, 2, 7)));
    for (const ggml_type cache : {F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0}) {
        bench.add(ggml_set_rows(context, bench.input(cache, 96, 16), rows(), bench.input(GGML_TYPE_I64, 7)));
        bench.add(ggml_flash_attn_ext(context, bench.input(F32, 64, 3, 4), bench.input(cache, 64, 256, 2),
                                      bench.input(cache, 64, 256, 2), bench.input(F16, 256, 3), 0.125f, 8.0f,
                                      0.0f));
    }
    bench.add(ggml_rope_ext(context, bench.input(F32, 64, 4, 7), bench.input(I32, 7), bench.input(F32, 32),
                            64, GGML_ROPE_TYPE_NEOX, 2048, 10000, 1, 0, 1, 32, 1));
    bench.add(ggml_soft_max_ext(context, bench.input(F32, 256, 7, 4), bench.input(F32, 256, 7), 0.125f, 0));
    for (const ggml_type weights :
         {F32, F16, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q8_0, GGML_TYPE_Q6_K,
          GGML_TYPE_MXFP4, GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS, GGML_TYPE_IQ3_S, GGML_TYPE_IQ3_XXS,
          GGML_TYPE_IQ2_S, GGML_TYPE_IQ2_XS, GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ1_S, GGML_TYPE_IQ1_M}) {
        bench.add(ggml_mul_mat(context, bench.input(weights, 768, 4096), bench.input(F32, 768, 5)));
        bench.add(ggml_get_rows(context, bench.input(weights, 512, 4096), bench.input(I32, 7)));
    }
    bench.add(ggml_ssm_conv(context, bench.input(F32, 7 + 3, 32, 2), bench.input(F32, 4, 32)));
    bench.add(ggml_ssm_scan(context, bench.input(F32, 16, 8, 4, 2), bench.input(F32, 8, 4, 7, 2),
                            bench.input(F32, 4, 7, 2), bench.input(F32, 1, 4), bench.input(F32, 16, 1, 7, 2),
                            bench.input(F32, 16, 1, 7, 2), bench.input(I32, 2), 1));
    return bench.describe();
}

std::vector<GraphOp> all_ops() {
    std::vector<GraphOp> ops = other_ops();
    ops.insert(ops.end(), tiny_model_ops().begin(), tiny_model_ops().end());
    return ops;
}

ggml_backend_ptr cpu() {
    ggml_backend_ptr backend(ggml_backend_cpu_init());
    ggml_backend_cpu_set_n_threads(backend.get(), 1);
    return backend;
}

// --- what a backend may do wrong ------------------------------------------------------------------

template <class Change> void change_numbers(ggml_tensor & node, Change change) {
    for (int64_t i3 = 0; i3 < node.ne[3]; i3++) {
        for (int64_t i2 = 0; i2 < node.ne[2]; i2++) {
            for (int64_t i1 = 0; i1 < node.ne[1]; i1++) {
                for (int64_t i0 = 0; i0 < node.ne[0]; i0++) {
                    char * place = static_cast<char *>(node.data) + i0 * static_cast<int64_t>(node.nb[0]) +
                                   i1 * static_cast<int64_t>(node.nb[1]) +
                                   i2 * static_cast<int64_t>(node.nb[2]) +
                                   i3 * static_cast<int64_t>(node.nb[3]);
                    if (node.type == GGML_TYPE_F32) {
                        float & value = *reinterpret_cast<float *>(place);
                        value         = change(value);
                    } else if (node.type == GGML_TYPE_F16) {
                        auto & value = *reinterpret_cast<ggml_fp16_t *>(place);
                        value        = ggml_fp32_to_fp16(change(ggml_fp16_to_fp32(value)));
                    }
                }
            }
        }
    }
}

bool is_float(const GraphOp & op) {
    return op.output().type == GGML_TYPE_F32 || op.output().type == GGML_TYPE_F16;
}

void scale(ggml_tensor & node, const std::string &) {
    change_numbers(node, [](float value) { return 1.01f * value; });
}

void put_nan(ggml_tensor & node, const std::string &) {
    size_t place = 0;
    change_numbers(
        node, [&](float value) { return place++ == 0 ? std::numeric_limits<float>::quiet_NaN() : value; });
}

void put_infinity(ggml_tensor & node, const std::string &) {
    size_t place = 0;
    change_numbers(
        node, [&](float value) { return place++ == 0 ? std::numeric_limits<float>::infinity() : value; });
}

void clear_row(ggml_tensor & node, const std::string &) {
    std::memset(node.data, 0, ggml_row_size(node.type, node.ne[0]));
}

void shift(ggml_tensor & node, const std::string &) {
    const size_t size = ggml_type_size(node.type), all = ggml_nbytes(&node);
    std::memmove(static_cast<char *>(node.data) + size, node.data, all - size);
}

void undo(ggml_tensor & node, const std::string & before) {
    std::memcpy(node.data, before.data(), before.size());
}

std::string detail(const Error & error, const std::string & name) {
    for (const auto & [key, value] : error.detail) {
        if (key == name) {
            return std::holds_alternative<std::string>(value) ? std::get<std::string>(value)
                                                              : std::to_string(std::get<double>(value));
        }
    }
    return "";
}

Error error_of(std::span<const GraphOp> ops, const BrokenGpu & broken) {
    const ggml_backend_ptr reference = cpu();
    try {
        run_self_test(ops, broken.backend(), reference.get(), {});
    } catch (const Error & error) {
        return error;
    }
    return Error(ErrorCode::internal, "nothing was found");
}

// Every operation computed so, on a backend that spoils it: those for which nothing was found.
std::vector<std::string> missed(const Spoil & spoil, const std::function<bool(const GraphOp &)> & applies) {
    const ggml_backend_ptr   reference = cpu();
    std::vector<std::string> names;
    size_t                   tried = 0;
    for (const GraphOp & op : all_ops()) {
        if (applies(op)) {
            const BrokenGpu broken(op.last().name, spoil);
            const auto      verdict = try_op(op, broken.backend(), reference.get());
            REQUIRE(verdict);
            tried++;
            if (verdict->ok) {
                names.push_back(verdict->text());
            }
        }
    }
    CHECK(tried > 40);
    return names;
}

std::string lines(const std::vector<std::string> & texts) {
    std::string joined;
    for (const std::string & text : texts) {
        joined += text + "\n";
    }
    return joined;
}

bool any(const GraphOp &) {
    return true;
}

} // namespace

TEST_CASE("gpu_self_test: the CPU agrees with itself about every operation of a model, and of others") {
    const ggml_backend_ptr device = cpu(), reference = cpu();
    for (const GraphOp & op : all_ops()) {
        const auto verdict = try_op(op, device.get(), reference.get());
        CAPTURE(signature(op));
        REQUIRE(verdict);
        CHECK_MESSAGE(verdict->ok, verdict->text());
        CHECK(verdict->error == 0);
        CHECK(verdict->numbers == op.output().elements()); // else there is nothing to compare
    }
}

TEST_CASE("gpu_self_test: wrong scales, lost rows, shifts and numbers that are none are caught (case E7)") {
    CHECK(lines(missed(scale, is_float)) == "");
    CHECK(lines(missed(put_nan, is_float)) == "");
    CHECK(lines(missed(put_infinity, is_float)) == "");
    CHECK(lines(missed(clear_row, [](const GraphOp & op) { return op.output().ne[0] > 1; })) == "");
    CHECK(lines(missed(shift, any)) == "");
}

TEST_CASE("gpu_self_test: an operation that computes nothing is caught (case G13)") {
    CHECK(lines(missed(undo, any)) == "");
}

TEST_CASE("gpu_self_test: a single wrong value among thousands is caught") {
    // By as much as values are large.
    const auto one = [](ggml_tensor & node, const std::string &) {
        int64_t place  = 0;
        double  square = 0;
        change_numbers(node, [&](float value) {
            square += static_cast<double>(value) * value;
            return value;
        });
        const double size = std::sqrt(square / static_cast<double>(ggml_nelements(&node)));
        change_numbers(node, [&](float value) {
            return place++ == ggml_nelements(&node) / 2 ? value + static_cast<float>(size) : value;
        });
    };
    CHECK(lines(missed(one, is_float)) == "");
}

TEST_CASE("gpu_self_test: the error names the operation that is wrong, with the figures") {
    std::map<std::string, std::string> first; // signature of the first of each kind
    for (const GraphOp & op : tiny_model_ops()) {
        first.emplace(op.last().name, signature(op));
    }
    REQUIRE(first.size() > 10);
    for (const auto & [name, wanted] : first) {
        const BrokenGpu broken(name, shift);
        const Error     error = error_of(tiny_model_ops(), broken);
        CAPTURE(name);
        CHECK(error.code == ErrorCode::gpu_mismatch);
        CHECK(detail(error, "op") == wanted);
        CHECK(std::stod(detail(error, "error")) > std::stod(detail(error, "limit")));
        CHECK(detail(error, "index").starts_with("["));
        CHECK(std::string(error.what()).find(wanted) != std::string::npos);
    }
}

TEST_CASE("gpu_self_test: what is not written is told from what is wrong") {
    const std::vector<GraphOp> ops = other_ops();
    const BrokenGpu            broken("NORM", undo);
    const Error                error = error_of(ops, broken);
    CHECK(detail(error, "measure") == "unwritten");
    CHECK(std::stod(detail(error, "error")) == 96 * 7);
}

TEST_CASE("gpu_self_test: rounding as GPUs do it passes, next to factors that do not") {
    const ggml_backend_ptr reference = cpu();
    // Weights and activations in f16, as many shaders have them.
    const auto half = [](ggml_tensor & node, const std::string &) {
        change_numbers(node, [](float value) { return ggml_fp16_to_fp32(ggml_fp32_to_fp16(value)); });
    };
    // Eight bits for activations, as MMVQ kernels have them: an error of 0.5 %, without a factor.
    const auto eight_bits = [](ggml_tensor & node, const std::string &) {
        int64_t place = 0;
        change_numbers(node, [&](float value) { return value + (place++ % 2 ? 0.005f : -0.005f) * value; });
    };
    for (const GraphOp & op : all_ops()) {
        const bool product = op.last().op == GGML_OP_MUL_MAT || op.last().op == GGML_OP_MUL_MAT_ID;
        const auto passes  = [&](const Spoil & spoil) {
            const BrokenGpu broken(op.last().name, spoil);
            return try_op(op, broken.backend(), reference.get())->ok;
        };
        CAPTURE(signature(op));
        CHECK(passes(half));
        CHECK((!product || passes(eight_bits)));
    }
}

TEST_CASE("gpu_self_test: what is known is not tested again, and a changed kernel has another name") {
    const ggml_backend_ptr device = cpu(), reference = cpu();
    const auto &           ops = tiny_model_ops();
    const SelfTestReport   all = run_self_test(ops, device.get(), reference.get(), {});
    CHECK(all.tested == ops.size());
    CHECK(all.known == 0);
    CHECK(all.proven.size() == all.tested);
    CHECK_FALSE(all.worst_op.empty());
    CHECK(all.ms > 0);

    std::set<std::string> known(all.proven.begin(), all.proven.end());
    const SelfTestReport  again = run_self_test(ops, device.get(), reference.get(), known);
    CHECK(again.tested == 0);
    CHECK(again.known == ops.size());
    CHECK(again.proven == all.proven);

    known.erase(signature(ops.back()));
    const SelfTestReport last = run_self_test(ops, device.get(), reference.get(), known);
    CHECK(last.tested == 1);
    CHECK(last.worst_op == signature(ops.back()));
    CHECK(last.proven == all.proven);
}

TEST_CASE("gpu_self_test: an operation that the device leaves to the CPU is not tested") {
    const auto      no_experts = [](const ggml_tensor & node) { return node.op != GGML_OP_MUL_MAT_ID; };
    const BrokenGpu broken("MUL_MAT_ID", clear_row, no_experts);
    const ggml_backend_ptr reference = cpu();
    const SelfTestReport   report    = run_self_test(tiny_model_ops(), broken.backend(), reference.get(), {});
    const auto experts = std::count_if(tiny_model_ops().begin(), tiny_model_ops().end(),
                                       [](const GraphOp & op) { return op.last().op == GGML_OP_MUL_MAT_ID; });
    CHECK(experts > 2);
    CHECK(report.unchecked.size() == static_cast<size_t>(experts));
    CHECK(report.tested == tiny_model_ops().size() - report.unchecked.size());
}
