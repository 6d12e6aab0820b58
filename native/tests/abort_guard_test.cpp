// ggml gives up inside a graph: the process lives on and the reason is told, whichever thread it was.
#include "engine/abort_guard.h"

#include "engine/error.h"

#include <doctest/doctest.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace headrace;

namespace {

// get_rows with an index that no table has: an assertion in whichever thread meets it.
void compute_bad_graph(int threads, int bad_row) {
    const auto context =
        std::unique_ptr<ggml_context, decltype(&ggml_free)>(ggml_init({16 << 20, nullptr, false}), ggml_free);
    ggml_tensor * table = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, 64, 8);
    ggml_tensor * rows  = ggml_new_tensor_1d(context.get(), GGML_TYPE_I32, 64);
    std::memset(table->data, 0, ggml_nbytes(table));
    std::memset(rows->data, 0, ggml_nbytes(rows));
    static_cast<int32_t *>(rows->data)[bad_row] = 1000;
    ggml_cgraph * graph                         = ggml_new_graph(context.get());
    ggml_build_forward_expand(graph, ggml_get_rows(context.get(), table, rows));

    ggml_threadpool_params params = ggml_threadpool_params_default(threads);
    const auto             pool   = std::unique_ptr<ggml_threadpool, decltype(&ggml_threadpool_free)>(
        ggml_threadpool_new(&params), ggml_threadpool_free);
    ggml_cplan           plan = ggml_graph_plan(graph, threads, pool.get());
    std::vector<uint8_t> work(plan.work_size);
    plan.work_data = work.data();
    ggml_graph_compute(graph, &plan);
}

// Empty if nothing was thrown, or something else.
std::string reason_of_bad_graph(int threads, int bad_row) {
    try {
        compute_bad_graph(threads, bad_row);
    } catch (const Error & error) {
        return error.code == ErrorCode::engine_aborted ? error.what() : "";
    }
    return "";
}

} // namespace

TEST_CASE("abort_guard: an assertion on the engine's own thread becomes engine_aborted with the reason") {
    const AbortGuard guard;
    CHECK(reason_of_bad_graph(1, 0).find("GGML_ASSERT") != std::string::npos);
}

TEST_CASE("abort_guard: an assertion on another compute thread reaches the engine's thread, without a hang") {
    for (int bad_row : {0, 20, 40, 63}) {
        const AbortGuard guard;
        CHECK(reason_of_bad_graph(4, bad_row).find("GGML_ASSERT") != std::string::npos);
    }
}

TEST_CASE("abort_guard: after an abort, a new guard starts clean and other graphs still run") {
    const AbortGuard guard;
    CHECK_NOTHROW(guard.check());
    const auto context =
        std::unique_ptr<ggml_context, decltype(&ggml_free)>(ggml_init({1 << 20, nullptr, false}), ggml_free);
    ggml_tensor * a = ggml_new_tensor_1d(context.get(), GGML_TYPE_F32, 4);
    for (int i = 0; i < 4; i++) {
        static_cast<float *>(a->data)[i] = 2.0f;
    }
    ggml_tensor * product = ggml_mul(context.get(), a, a);
    ggml_cgraph * graph   = ggml_new_graph(context.get());
    ggml_build_forward_expand(graph, product);
    ggml_graph_compute_with_ctx(context.get(), graph, 2);
    CHECK(static_cast<float *>(product->data)[3] == 4.0f);
}

TEST_CASE("abort_guard: an abort that the call swallows leaves with_abort_guard as one all the same") {
    const auto swallow = [] { reason_of_bad_graph(2, 63); };
    CHECK_THROWS_AS(with_abort_guard(swallow), Error);
    CHECK_NOTHROW(with_abort_guard([] {}));
}

TEST_CASE("abort_guard: an abort on one thread is nothing to the engine of another") {
    const AbortGuard guard;
    std::string      reason;
    std::thread      other([&] {
        const AbortGuard others_guard;
        reason = reason_of_bad_graph(3, 20);
    });
    other.join();
    CHECK(reason.find("GGML_ASSERT") != std::string::npos);
    CHECK_NOTHROW(guard.check());
}
