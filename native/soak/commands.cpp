// The making behind commands.h. The model is tests/data/moe-trained-q4_k_m.gguf, some of whose answers are
// known.
#include "soak/commands.h"

#include "headrace.h"

#include <iterator>
#include <map>
#include <string_view>

namespace headrace::soak {

using nlohmann::json;

namespace {

constexpr int64_t CONTEXT = 192; // tokens: some requests reach its end

const std::string GRAMMAR = R"(root ::= [a-z ]+ "." | "yes" | "no")";

json weather_tool() {
    return {{"type", "function"}, {"function", {{"name", "weather"}, {"parameters", {{"type", "object"}}}}}};
}

// Options whose values a random number or string would miss. An empty list: the option is left alone.
const std::map<std::string, json> & known_values() {
    static const std::map<std::string, json> values = {
        {"maxTokens", {1, 2, 3, 5, 8, 13}},
        {"contextKey", {"", "a", "b", "c"}},
        {"deadlineMs", {0, 1, 20, 100000}},
        {"priority", {-2, 0, 0, 1, 5}},
        {"grammar", {"", GRAMMAR, "root ::= (", "root ::= missing"}},
        {"adapters", {json::array(), {"absent"}}},
        {"stop", {json::array(), {"a"}, {"\n", "the"}, {""}}},
        {"seed", {-1, 0, 7, 4294967294}},
        {"logprobs", {0, 1, 5}},
        {"topLogprobs", {0, 1, 5}},
        {"responseFormat", {{{"type", "text"}}, {{"type", "json_object"}}, {{"type", "none"}}}},
        {"tools", {json::array(), json::array({weather_tool()}), {"none"}}},
        {"toolChoice", {"auto", "none", "required"}},
        {"topP", {0, 0.5, 1}},
    };
    return values;
}

// The same for loading.
const std::map<std::string, json> & known_load_values() {
    static const std::map<std::string, json> values = {
        {"contextSize", {CONTEXT}},
        {"threads", {2}},
        {"batchSize", {3, 16, 64}},
        {"queueLimit", {8, 64}},
        {"prefixCacheBytes", {0, 300000}},
        {"prefixCacheDiskBytes", {0, 300000}},
        {"speculation", {"none", "prompt"}},
        {"draftTokens", {1, 4}},
        {"backend", {"cpu"}},
    };
    return values;
}

json conversation(const std::string & question, const std::string & system) {
    json list = json::array();
    if (!system.empty()) {
        list.push_back({{"role", "system"}, {"content", system}});
    }
    list.push_back({{"role", "user"}, {"content", question}});
    return list;
}

constexpr std::pair<const char *, const char *> KNOWN[] = {
    {"What is the capital of France?", "The capital of France is Paris."},
    {"List three colors.", "1. red\n2. green\n3. blue"},
    {"Hello!", "Hello! I am a tiny mixture of experts model made for tests."},
};

// How the last of them begins: after each token, the text so far.
constexpr std::pair<int64_t, const char *> BEGINNING[] = {
    {56, "H"}, {478, "Hell"}, {95, "Hello"}, {17, "Hello!"}, {339, "Hello! I"}, {744, "Hello! I am"}};

std::string story() {
    return "<|im_start|>user\nTell me a story.<|im_end|>\n<|im_start|>assistant\n";
}

} // namespace

CommandMaker::CommandMaker(uint64_t seed, int64_t slots, std::string folder)
    : random_(seed), slots_(slots), folder_(std::move(folder)), declarations_(json::parse(hr_describe())) {}

json CommandMaker::option_value(const json & declared) {
    const std::string type    = declared.at("type");
    const json        choices = declared.value("choices", json::array());
    if (!choices.empty()) {
        return random_.pick(choices);
    }
    if (type == "boolean") {
        return random_.chance(0.5);
    }
    if (type != "integer" && type != "number") {
        return declared.at("default");
    }
    const double low  = declared.at("minimum");
    const double high = declared.at("maximum");
    const double x    = random_.chance(0.3)   ? low
                        : random_.chance(0.3) ? high
                                              : low + random_.share() * (std::min(high, low + 50) - low);
    return type == "integer" ? json(static_cast<int64_t>(x)) : json(x);
}

json CommandMaker::random_options() {
    json options = json::object();
    for (const json & declared : declarations_.at("options")) {
        const std::string name = declared.at("name");
        if (declared.at("scope") != "request" || !random_.chance(name == "maxTokens" ? 1.0 : 0.15)) {
            continue;
        }
        const auto values = known_values().find(name);
        const bool known  = values != known_values().end() && declared.at("type") != "boolean";
        options[name]     = known ? random_.pick(values->second) : option_value(declared);
    }
    return options;
}

std::string CommandMaker::load(const std::string & model) {
    json options = json::object();
    for (const json & declared : declarations_.at("options")) {
        const std::string name = declared.at("name");
        if (declared.at("scope") != "load") {
            continue;
        }
        const auto values = known_load_values().find(name);
        const bool fixed  = name == "contextSize" || name == "threads";
        if (name == "slots") {
            options[name] = slots_;
        } else if (name == "prefixCacheFolder") {
            options[name] = random_.chance(0.5) ? "" : folder_;
        } else if (!fixed && random_.chance(0.4)) {
            continue;
        } else if (values != known_load_values().end()) {
            options[name] = random_.pick(values->second);
        } else if (declared.at("type") == "boolean" || !declared.value("choices", json::array()).empty()) {
            options[name] = option_value(declared);
        }
    }
    return json({{"model", model}, {"options", options}}).dump();
}

std::string CommandMaker::prompt() {
    static const std::string words[] = {
        "1, 2, 3, 4,", "Once upon a time", "the",  " ", "é",      "日本", "😀",
        "<|im_end|>",  "<|im_start|>user", "\n\n", "(", "\"a\": "};
    std::string text = random_.pick(words);
    for (size_t more = random_.below(random_.chance(0.03) ? 40 : 4); more > 0; more--) {
        text += random_.pick(words);
    }
    return text;
}

json CommandMaker::messages() {
    json list = json::array();
    if (random_.chance(0.2)) {
        list.push_back({{"role", "system"}, {"content", "You are a helpful assistant."}});
    }
    for (size_t turns = random_.below(2); turns > 0; turns--) {
        list.push_back({{"role", "user"}, {"content", prompt()}});
        list.push_back({{"role", "assistant"}, {"content", prompt()}});
    }
    list.push_back({{"role", "user"}, {"content", random_.pick(KNOWN).first}});
    return list;
}

// fits: left as it is unless the input can be too long for the context.
json CommandMaker::input_of(const std::string & operation, bool & fits) {
    if (operation == "query") {
        if (random_.chance(0.03)) {
            fits = false;
            std::string text;
            for (int64_t i = 0; i < CONTEXT; i++) {
                text += "word ";
            }
            return {{"prompt", text}};
        }
        return {{"prompt", prompt()}};
    }
    if (operation == "chat" || operation == "applyTemplate") {
        return {{"messages", messages()}};
    }
    if (operation == "embed") {
        return {{"inputs", {prompt(), prompt(), "three"}}};
    }
    if (operation == "tokenize") {
        return {{"text", prompt()}};
    }
    if (operation == "detokenize") {
        return {{"tokenIds", {1, 56, 478, 95}}};
    }
    if (operation == "countTokens") {
        return random_.chance(0.5) ? json({{"text", prompt()}}) : json({{"messages", messages()}});
    }
    return json::object();
}

Command CommandMaker::valid(int64_t id) {
    Command command;
    if (random_.chance(0.07)) {
        const auto & [question, answer] = random_.pick(KNOWN);
        command.expectation             = {true, true, "", answer, {}, ""};
        const std::string system        = random_.chance(0.5) ? "" : "You are a helpful assistant.";
        json              request       = {{"id", id},
                                           {"operation", "chat"},
                                           {"messages", conversation(question, system)},
                                           {"options", {{"temperature", 0}, {"maxTokens", 40}}}};
        if (std::string_view(question) == std::rbegin(KNOWN)->first && random_.chance(0.5)) {
            Expectation & expected = command.expectation;
            for (size_t count = random_.below(std::size(BEGINNING) + 1), i = 0; i < count; i++) {
                expected.told_ids.push_back(BEGINNING[i].first);
                expected.told_text = BEGINNING[i].second;
            }
            request["replay"] = {{"tokenIds", expected.told_ids},
                                 {"text", expected.told_text},
                                 {"elapsedMs", 2.5},
                                 {"seed", 7}};
        }
        command.text = request.dump();
        return command;
    }
    const std::string operation   = random_.chance(0.7) ? (random_.chance(0.9) ? "query" : "chat")
                                                        : random_.pick(declarations_.at("operations"));
    bool              fits        = true;
    json              request     = input_of(operation, fits);
    request["id"]                 = id;
    request["operation"]          = operation;
    command.expectation.generates = operation == "query" || operation == "chat";
    if (command.expectation.generates && random_.chance(0.5)) {
        request["options"]        = random_options();
        command.expectation.plain = false;
    } else if (command.expectation.generates) {
        request["options"]        = {{"maxTokens", random_.between(1, 8)}};
        command.expectation.plain = fits && operation == "query";
    }
    if (!fits && !request["options"].contains("overflow")) {
        // What is wrong with an option may be found before the length is.
        command.expectation.refusal = request["options"].size() > 1 ? "" : "context_overflow";
    }
    command.text = request.dump();
    return command;
}

Command CommandMaker::broken(int64_t id) {
    const json query = {{"id", id}, {"operation", "query"}, {"prompt", "x"}};
    const auto with  = [&](const json & changes) {
        json changed = query;
        changed.update(changes);
        return changed.dump();
    };
    const std::string invalid_request = "invalid_request";
    const std::string invalid_option  = "invalid_option";
    const auto        refused         = [](std::string text, std::string code) {
        return Command{std::move(text), true, {true, false, std::move(code), "", {}, ""}};
    };
    const auto unreadable = [](std::string text) { return Command{std::move(text), false, {}}; };
    switch (random_.below(20)) {
        case 0: return unreadable("");
        case 1: return unreadable("{\"id\": " + std::to_string(id));
        case 2: return unreadable("[" + query.dump() + "]");
        case 3: return unreadable(with({{"id", -1}}));
        case 4: return unreadable(with({{"id", "seven"}}));
        case 5: return unreadable(with({{"id", 18446744073709551615u}}));
        case 6: return unreadable("{\"id\":" + std::to_string(id) + ",\"prompt\":\"\xC3\x28\"}");
        case 7: return unreadable(std::string(3000, '['));
        case 8: return refused(with({{"operation", "dance"}}), "unsupported_operation");
        case 9: return refused(with({{"operation", nullptr}}), invalid_request);
        case 10: return refused(with({{"prompt", ""}}), invalid_request);
        case 11: return refused(with({{"prompt", 7}}), invalid_request);
        case 12: return refused(with({{"extra", 7}}), invalid_request);
        case 13: return refused(with({{"options", {{"noSuchOption", 1}}}}), invalid_option);
        case 14: return refused(with({{"options", {{"maxTokens", "many"}}}}), invalid_option);
        case 15: return refused(with({{"options", {{"maxTokens", 1e300}}}}), invalid_option);
        case 16: return refused(with({{"options", {{"stop", {1, 2}}}}}), invalid_option);
        case 17: return refused(with({{"replay", {{"tokenIds", {56, 99999}}}}}), invalid_request);
        case 18: return refused(with({{"replay", {{"tokenIds", {56}}, {"text", "J"}}}}), invalid_request);
        default:
            return refused(json({{"id", id}, {"operation", "chat"}, {"messages", json::array()}}).dump(),
                           invalid_request);
    }
}

Command CommandMaker::lasting(int64_t id, int64_t tokens) {
    const json options = {{"maxTokens", tokens}, {"temperature", 0}};
    const json request = {{"id", id}, {"operation", "query"}, {"prompt", story()}, {"options", options}};
    return {request.dump(), true, {true, true, "", "", {}, ""}};
}

} // namespace headrace::soak
