// The reading behind replay_json.h.
#include "abi/replay_json.h"

#include "abi/json_fields.h"

#include <cmath>
#include <limits>

namespace headrace {

using nlohmann::json;

namespace {

std::string text_of(const json & object, const char * name) {
    return object.contains(name) ? read_string(object, name) : "";
}

const json & list_of(const json & object, const char * name) {
    static const json none  = json::array();
    const auto        found = object.find(name);
    if (found != object.end() && !found->is_array()) {
        malformed(std::string("replay.") + name + " must be a list");
    }
    return found == object.end() ? none : *found;
}

std::vector<ToolCall> read_calls(const json & replay) {
    std::vector<ToolCall> calls;
    for (const json & call : list_of(replay, "toolCalls")) {
        if (!call.is_object()) {
            malformed("replay.toolCalls must hold objects");
        }
        allow_only("a call in replay.toolCalls", call, {"id", "name", "arguments"});
        calls.push_back({read_string(call, "id"), read_string(call, "name"), read_string(call, "arguments")});
    }
    return calls;
}

// null: minus infinity, for which JSON has no form.
double read_logprob(const json & token) {
    const json logprob = token.value("logprob", json());
    if (!logprob.is_number() && !logprob.is_null()) {
        malformed("a logprob in replay.logprobs must be a number");
    }
    return logprob.is_null() ? -std::numeric_limits<double>::infinity() : logprob.get<double>();
}

TokenProbability read_probability(const json & token, std::initializer_list<std::string_view> names) {
    if (!token.is_object()) {
        malformed("replay.logprobs must hold objects");
    }
    allow_only("an entry of replay.logprobs", token, names);
    return {read_token(token.value("tokenId", json()), "tokenId in replay.logprobs"),
            read_string(token, "text"), read_logprob(token)};
}

std::vector<TokenLogprobs> read_logprobs(const json & replay) {
    std::vector<TokenLogprobs> logprobs;
    for (const json & entry : list_of(replay, "logprobs")) {
        TokenLogprobs & read = logprobs.emplace_back(
            TokenLogprobs{read_probability(entry, {"tokenId", "text", "logprob", "top"}), {}});
        for (const json & other : list_of(entry, "top")) {
            read.top.push_back(read_probability(other, {"tokenId", "text", "logprob"}));
        }
    }
    return logprobs;
}

std::optional<int64_t> read_seed(const json & replay) {
    if (!replay.contains("seed")) {
        return std::nullopt;
    }
    constexpr int64_t largest = 4294967294; // as of the option
    const json        seed    = replay["seed"];
    if (!seed.is_number_integer() || seed < 0 || seed > largest) {
        malformed("replay.seed must be a whole number from 0 to " + std::to_string(largest));
    }
    return seed.get<int64_t>();
}

} // namespace

ReplayField read_replay(const json & command) {
    ReplayField read;
    const auto  found = command.find("replay");
    if (found == command.end()) {
        return read;
    }
    if (!found->is_object()) {
        malformed("replay must be an object");
    }
    const json & replay = *found;
    allow_only("replay", replay,
               {"tokenIds", "text", "reasoning", "toolCalls", "logprobs", "seed", "elapsedMs"});
    if (replay.contains("tokenIds")) {
        read.answer.tokens = read_token_ids(replay, "tokenIds");
    }
    read.answer.text     = text_of(replay, "text");
    read.answer.logprobs = read_logprobs(replay);
    read.parts           = {*read.answer.text, text_of(replay, "reasoning"), read_calls(replay)};
    read.seed            = read_seed(replay);
    const json elapsed   = replay.value("elapsedMs", json(0));
    if (!elapsed.is_number() || !std::isfinite(elapsed.get<double>()) || elapsed.get<double>() < 0) {
        malformed("replay.elapsedMs must be a number from 0 up");
    }
    read.answer.elapsed_ms = elapsed.get<double>();
    return read;
}

} // namespace headrace
