// The passes behind op_audit.h.
#include "engine/op_audit.h"

#include "engine/graph_passes.h"

namespace headrace {

// Repacked kernels take four rows at once; a fifth makes their remainder run too.
static constexpr int32_t PREFILL_TOKENS = 5;

std::vector<AuditedOp> audit_ops(const Model & model) {
    using Kind = GraphPasses::Kind;
    OpWatch     watch;
    GraphPasses passes(model, {PREFILL_TOKENS, 1}, OpWatch::on_node, &watch);
    const auto  run = [&](const std::string & phase, Kind kind, int32_t count,
                          OpWatch::Stepping stepping = OpWatch::Stepping::single) {
        watch.begin(phase, stepping);
        const std::string failure = passes.run(kind, {count});
        watch.check();
        if (!failure.empty()) {
            throw Error(ErrorCode::internal, "the " + phase + " of the op audit failed: " + failure);
        }
    };
    if (!passes.remembers()) {
        run("prefill", Kind::embed, PREFILL_TOKENS);
        return watch.ops();
    }
    if (llama_model_has_encoder(model.get())) {
        run("prefill", Kind::encode, PREFILL_TOKENS);
    }
    run("prefill", Kind::decode, PREFILL_TOKENS);
    // What was seen alone in the first pass runs as it will later in the second.
    run("decode", Kind::decode, 1, OpWatch::Stepping::fused);
    return watch.ops();
}

} // namespace headrace
