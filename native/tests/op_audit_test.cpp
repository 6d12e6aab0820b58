// The op audit of real files: the models of tests/data.
#include "engine/op_audit.h"

#include "broken_gpu.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace headrace;

namespace {

std::vector<AuditedOp> audit_tiny_model() {
    const Model model({std::string(HR_TEST_DATA) + "/moe-trained-q4_k_m.gguf"}, true, nullptr);
    return audit_ops(model);
}

const AuditedOp * find(const std::vector<AuditedOp> & ops, const std::string & phase,
                       const std::string & op) {
    const auto found = std::find_if(ops.begin(), ops.end(), [&](const AuditedOp & audited) {
        return audited.phase == phase && audited.op == op;
    });
    return found == ops.end() ? nullptr : &*found;
}

} // namespace

TEST_CASE("op_audit: a mixture of experts has its ops in both phases, each with a backend and a kernel") {
    const std::vector<AuditedOp> ops = audit_tiny_model();
    for (const char * phase : {"prefill", "decode"}) {
        for (const char * op : {"MUL_MAT", "MUL_MAT_ID", "GLU", "SOFT_MAX", "FLASH_ATTN_EXT", "RMS_NORM",
                                "ROPE", "GET_ROWS", "SET_ROWS", "ADD"}) {
            CAPTURE(phase);
            CAPTURE(op);
            const AuditedOp * found = find(ops, phase, op);
            REQUIRE(found);
            CHECK(found->backend == "CPU");
            CHECK_FALSE(found->kernel.empty());
            CHECK(found->count > 0);
        }
        CHECK(find(ops, phase, "GLU")->kernel == "SWIGLU");
    }
    CHECK_FALSE(find(ops, "decode", "VIEW"));
    CHECK_FALSE(find(ops, "decode", "RESHAPE"));
}

TEST_CASE("op_audit: what is on a GPU is listed as such, in graphs as they are, not node by node") {
    const BrokenGpu   gpu;
    const Model       model({std::string(HR_TEST_DATA) + "/moe-trained-q4_k_m.gguf"}, false, nullptr,
                            Placement{gpu.device(), -1});
    const auto        ops   = audit_ops(model);
    const AuditedOp * found = find(ops, "decode", "MUL_MAT_ID");
    REQUIRE(found);
    CHECK(found->backend == "Broken");
    CHECK(found->count > 2);
    CHECK(gpu.graphs() < 10);
}
