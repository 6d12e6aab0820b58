// The writing behind events_json.h.
#include "abi/events_json.h"

#include "abi/artifact.h"
#include "abi/options_json.h"

#include <cmath>

namespace headrace {

using nlohmann::json;

namespace {

constexpr const char * BACKEND = "cpu";

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

struct Writer {
    int64_t threads; // of the engine that the events come from

    json operator()(const ReadyEvent & event) const {
        return {{"type", "ready"},
                {"model", model_json(event.model)},
                {"options", write_options(event.options)},
                {"backend", BACKEND},
                {"artifact", artifact_name()},
                {"loadMs", rounded(event.load_ms)}};
    }

    json operator()(const AcceptedEvent & event) const {
        return {{"type", "accepted"},
                {"id", event.id},
                {"options", write_options(event.options)},
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
                  {"usage",
                   {{"inputTokens", event.usage.input_tokens},
                    {"outputTokens", event.usage.output_tokens},
                    {"cachedTokens", event.usage.cached_tokens}}},
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
                    {"backend", BACKEND},
                    {"artifact", artifact_name()},
                    {"threads", threads}}}}}};
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
        return {{"type", "done"}, {"id", event.id}, {"result", {{"ops", std::move(ops)}}}};
    }

    json operator()(const FailedEvent & event) const {
        return {{"type", "failed"}, {"id", event.id}, {"error", error_json(event.error)}};
    }

    json operator()(const EngineFailedEvent & event) const {
        return {{"type", "engine_failed"}, {"error", error_json(event.error)}};
    }
};

} // namespace

std::string write_events(const EventQueue & events, int64_t threads, ChatRequests & chats) {
    json array = json::array();
    for (const Event & event : events) {
        json written = std::visit(Writer{threads}, event);
        add_chat(array, written, event, chats);
        array.push_back(std::move(written));
    }
    return array.dump(-1, ' ', false, json::error_handler_t::replace);
}

} // namespace headrace
