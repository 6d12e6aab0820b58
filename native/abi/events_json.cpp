// The writing behind events_json.h.
#include "abi/events_json.h"

#include "abi/artifact.h"
#include "abi/options_json.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace headrace {

using nlohmann::json;

namespace {

double rounded(double value) {
    return std::round(value * 1000) / 1000;
}

json error_json(const Error & error) {
    json detail = json::object();
    for (const auto & [name, value] : error.detail) {
        std::visit([&, key = name](const auto & plain) { detail[key] = plain; }, value);
    }
    return {{"code", error_name(error.code)}, {"message", error.what()}, {"detail", detail}};
}

json model_json(const ModelInfo & model) {
    return {{"name", model.name},
            {"architecture", model.architecture},
            {"parameters", model.parameters},
            {"bytes", model.bytes},
            {"vocabulary", model.vocabulary},
            {"trainedContext", model.trained_context},
            {"chatTemplate", model.chat_template}};
}

json gpu_json(const GpuCounters & gpu) {
    return {{"dispatches", gpu.dispatches},
            {"submits", gpu.submits},
            {"sparedWaits", gpu.spared_waits},
            {"bindGroups", gpu.bind_groups},
            {"waits", gpu.waits},
            {"maps", gpu.maps},
            {"writes", gpu.writes},
            {"writtenBytes", gpu.written_bytes},
            {"readBytes", gpu.read_bytes}};
}

json token_json(const TokenProbability & token) {
    return {{"tokenId", token.token}, {"text", token.text}, {"logprob", token.logprob}};
}

json logprobs_json(const std::vector<TokenLogprobs> & tokens) {
    json list = json::array();
    for (const TokenLogprobs & token : tokens) {
        json top = json::array();
        for (const TokenProbability & other : token.top) {
            top.push_back(token_json(other));
        }
        json entry   = token_json(token.chosen);
        entry["top"] = std::move(top);
        list.push_back(std::move(entry));
    }
    return list;
}

// Only where a request asks for them.
void add_logprobs(json & written, const Event & event) {
    if (const auto * tokens = std::get_if<TokensEvent>(&event); tokens && tokens->logprobs) {
        written["logprobs"] = logprobs_json(*tokens->logprobs);
    }
    if (const auto * done = std::get_if<DoneEvent>(&event); done && done->logprobs) {
        written["result"]["logprobs"] = logprobs_json(*done->logprobs);
    }
}

json usage_json(const Usage & usage) {
    return {{"inputTokens", usage.input_tokens},
            {"outputTokens", usage.output_tokens},
            {"cachedTokens", usage.cached_tokens}};
}

// A float in the nine digits that tell it from all others, where a double has up to seventeen.
double brief_double(float value) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.9g", static_cast<double>(value));
    return std::strtod(text, nullptr);
}

json vectors_json(const std::vector<std::vector<float>> & vectors) {
    json array = json::array();
    for (const std::vector<float> & vector : vectors) {
        json & row = array.emplace_back(json::array());
        row.get_ref<json::array_t &>().reserve(vector.size());
        for (const float value : vector) {
            row.push_back(brief_double(value));
        }
    }
    return array;
}

json done_json(RequestId id, json result) {
    return {{"type", "done"}, {"id", id}, {"result", std::move(result)}};
}

json gpu_use_json(const GpuUse & gpu) {
    const SelfTestReport & test  = gpu.self_test;
    json                   worst = nullptr;
    if (!test.worst_op.empty()) {
        worst = {{"op", test.worst_op}, {"error", test.worst_error}};
    }
    return {{"description", gpu.description},
            {"layers", gpu.layers},
            {"layersTotal", gpu.layers_total},
            {"selfTest",
             {{"tested", test.tested},
              {"known", test.known},
              {"ms", rounded(test.ms)},
              {"worst", std::move(worst)},
              {"unchecked", test.unchecked},
              {"proven", test.proven}}}};
}

struct Writer {
    const EngineFacts & facts;

    json operator()(const ReadyEvent & event) const {
        json written = {{"type", "ready"},
                        {"model", model_json(event.model)},
                        {"operations", event.operations},
                        {"options", write_options(event.options)},
                        {"memory",
                         {{"modelBytes", event.memory.model},
                          {"contextBytes", event.memory.context},
                          {"computeBytes", event.memory.compute}}},
                        {"backend", facts.backend},
                        {"artifact", artifact_name()},
                        {"loadMs", rounded(event.load_ms)}};
        if (event.gpu) {
            written["gpu"] = gpu_use_json(*event.gpu);
        }
        return written;
    }

    json operator()(const AcceptedEvent & event) const {
        return {{"type", "accepted"},
                {"id", event.id},
                {"options",
                 std::visit([](const auto & options) { return write_options(options); }, event.options)},
                {"promptTokens", event.prompt_tokens}};
    }

    json operator()(const TokensEvent & event) const {
        return {{"type", "tokens"}, {"id", event.id}, {"text", event.text}, {"tokenIds", event.token_ids}};
    }

    json operator()(const DoneEvent & event) const {
        const RequestStats & stats = event.stats;
        return {{"type", "done"},
                {"id", event.id},
                {"result",
                 {{"text", event.text},
                  {"tokenIds", event.token_ids},
                  {"finishReason", FINISH_REASON_NAMES[static_cast<size_t>(event.finish_reason)]},
                  {"usage", usage_json(event.usage)},
                  {"stats",
                   {{"queueMs", rounded(stats.queue_ms)},
                    {"prefillMs", rounded(stats.prefill_ms)},
                    {"ttftMs", rounded(stats.ttft_ms)},
                    {"totalMs", rounded(stats.total_ms)},
                    {"prefillTokensPerSecond", rounded(stats.prefill_tokens_per_second)},
                    {"decodeTokensPerSecond", rounded(stats.decode_tokens_per_second)},
                    {"itlMs", {{"p50", rounded(stats.itl_p50_ms)}, {"p95", rounded(stats.itl_p95_ms)}}},
                    {"cache",
                     {{"source", CACHE_SOURCE_NAMES[static_cast<size_t>(stats.cache.source)]},
                      {"tokens", stats.cache.tokens}}},
                    {"speculation", {{"drafted", stats.drafted}, {"accepted", stats.accepted_drafts}}},
                    {"shifted", stats.slid},
                    {"replayed", stats.replayed},
                    {"backend", facts.backend},
                    {"artifact", artifact_name()},
                    {"threads", facts.threads}}}}}};
    }

    json operator()(const EmbeddedEvent & event) const {
        const size_t dimensions = event.vectors.empty() ? 0 : event.vectors.front().size();
        return done_json(event.id, {{"vectors", vectors_json(event.vectors)},
                                    {"dimensions", dimensions},
                                    {"usage", usage_json(event.usage)},
                                    {"stats",
                                     {{"queueMs", rounded(event.stats.queue_ms)},
                                      {"totalMs", rounded(event.stats.total_ms)},
                                      {"tokensPerSecond", rounded(event.stats.tokens_per_second)},
                                      {"backend", facts.backend},
                                      {"artifact", artifact_name()},
                                      {"threads", facts.threads}}}});
    }

    json operator()(const TokenizedEvent & event) const {
        return done_json(event.id, {{"tokenIds", event.token_ids}});
    }

    json operator()(const DetokenizedEvent & event) const {
        return done_json(event.id, {{"text", event.text}});
    }

    json operator()(const CountedEvent & event) const {
        return done_json(event.id, {{"tokens", event.tokens}});
    }

    json operator()(const RenderedEvent & event) const {
        return done_json(event.id, {{"prompt", event.prompt}});
    }

    json operator()(const AuditEvent & event) const {
        json ops = json::array();
        for (const AuditedOp & op : event.ops) {
            ops.push_back({{"phase", op.phase},
                           {"op", op.op},
                           {"inputs", op.inputs},
                           {"output", op.output},
                           {"backend", op.backend},
                           {"kernel", op.kernel},
                           {"count", op.count}});
        }
        return done_json(event.id, {{"ops", std::move(ops)}});
    }

    json operator()(const MetricsEvent & event) const {
        const EngineMetrics &    metrics   = event.metrics;
        const PrefixStoreStats & snapshots = metrics.snapshots;
        json                     written   = {{"accepted", metrics.accepted},
                                              {"finished", metrics.finished},
                                              {"cancelled", metrics.cancelled},
                                              {"failed", metrics.failed},
                                              {"waiting", metrics.waiting},
                                              {"running", metrics.running},
                                              {"steps", metrics.steps},
                                              {"busyMs", rounded(metrics.busy_ms)},
                                              {"prefillTokens", metrics.prefill_tokens},
                                              {"decodeTokens", metrics.decode_tokens},
                                              {"cachedTokens", metrics.cached_tokens},
                                              {"draftedTokens", metrics.drafted_tokens},
                                              {"acceptedDrafts", metrics.accepted_drafts},
                                              {"shiftedTokens", metrics.slid_tokens},
                                              {"snapshots",
                                               {{"entries", snapshots.entries},
                                                {"memoryBytes", snapshots.memory_bytes},
                                                {"diskEntries", snapshots.disk_entries},
                                                {"diskBytes", snapshots.disk_bytes},
                                                {"hits", snapshots.hits},
                                                {"diskHits", snapshots.disk_hits},
                                                {"misses", snapshots.misses},
                                                {"evictions", snapshots.evictions},
                                                {"rejectedFiles", snapshots.rejected_files},
                                                {"diskProblem", snapshots.disk_problem}}}};
        if (metrics.gpu) {
            written["gpu"] = gpu_json(*metrics.gpu);
        }
        return done_json(event.id, std::move(written));
    }

    json operator()(const FailedEvent & event) const {
        return {{"type", "failed"}, {"id", event.id}, {"error", error_json(event.error)}};
    }

    json operator()(const EngineFailedEvent & event) const {
        return {{"type", "engine_failed"}, {"error", error_json(event.error)}};
    }
};

} // namespace

std::string write_events(const EventQueue & events, const EngineFacts & facts, ChatRequests & chats) {
    json array = json::array();
    for (const Event & event : events) {
        json written = std::visit(Writer{facts}, event);
        add_logprobs(written, event);
        add_chat(array, written, event, chats);
        array.push_back(std::move(written));
    }
    return array.dump(-1, ' ', false, json::error_handler_t::replace);
}

} // namespace headrace
