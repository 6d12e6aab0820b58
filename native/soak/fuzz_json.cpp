// Fuzzes the JSON edge: mutated commands for hr_engine_submit and hr_engine_load, on a real model.
//
// Inputs are command texts, made by commands.h and then changed as JSON trees or as bytes. "@model" in one
// stands for the model's path. A finding is a crash, a request that never ends, or an error that says the engine
// is at fault. Not about what a right command does: see soak.cpp.
#include "soak/abi_engine.h"
#include "soak/commands.h"
#include "soak/fuzz_target.h"

#include <cstring>
#include <memory>
#include <vector>

using namespace headrace::soak;
using nlohmann::json;

namespace {

constexpr const char * MODEL_MARK  = "@model";
constexpr const char * FOLDER_MARK = "@folder";
constexpr int64_t      SLOTS       = 2;
constexpr size_t       MOST_INPUTS = 100; // of one engine
constexpr size_t       MOST_OPEN   = 6;

CommandMaker & maker() {
    static CommandMaker made(7, SLOTS, FOLDER_MARK);
    return made;
}

std::string replaced(std::string text, const std::string & mark, const std::string & with) {
    for (size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += with.size()) {
        text.replace(at, mark.size(), with);
    }
    return text;
}

std::string placed(const std::string & text) {
    return replaced(replaced(text, MODEL_MARK, fuzz_setting("HEADRACE_FUZZ_MODEL", "")), FOLDER_MARK,
                    fuzz_setting("HEADRACE_FUZZ_FOLDER", "."));
}

class Session {
  public:
    Session() {
        engine_.load(json({{"model", fuzz_setting("HEADRACE_FUZZ_MODEL", "")},
                           {"options", {{"contextSize", 64}, {"slots", SLOTS}, {"threads", 1}}}})
                         .dump());
        take_events();
    }

    void run(const std::string & command) {
        inputs_++;
        engine_.submit(command);
        take_events();
        tick();
        if (open_.size() > MOST_OPEN) {
            drain();
        }
    }

    bool worn() const { return inputs_ >= MOST_INPUTS; }

    void drain() {
        for (const double id : std::vector<double>(open_)) {
            engine_.cancel(id);
        }
        for (int ticks = 0; ticks < 500 && tick() > 0; ticks++) {
        }
        if (tick() != 0) {
            fuzz_finding("a request does not end, although it was cancelled");
        }
        open_.clear();
    }

  private:
    int32_t tick() {
        const int32_t unfinished = engine_.tick(1);
        take_events();
        if (unfinished < 0) {
            fuzz_finding("a command has ended the engine");
        }
        return unfinished;
    }

    void take_events() {
        for (const json & event : engine_.take_events()) {
            const std::string type = event.at("type");
            if (type == "accepted") {
                open_.push_back(event.at("id"));
            }
            if (type == "failed" || type == "engine_failed") {
                const json &      error = event.at("error");
                const std::string code  = error.at("code");
                if (code == "internal" || code == "engine_aborted" || type == "engine_failed") {
                    fuzz_finding(event.dump());
                }
                fuzz_outcome = code + ": " + without_particulars(error.at("message"));
            } else {
                fuzz_outcome = type;
            }
        }
    }

    AbiEngine           engine_;
    size_t              inputs_ = 0;
    std::vector<double> open_;
};

// A cache folder of the input's own choice would have the engine write anywhere.
bool writes_elsewhere(const json & command) {
    const json options = command.value("options", json());
    if (!options.is_object() || !options.contains("prefixCacheFolder")) {
        return false;
    }
    const json & folder = options.at("prefixCacheFolder");
    return folder.is_string() && folder != "" && folder != fuzz_setting("HEADRACE_FUZZ_FOLDER", ".");
}

void load(const std::string & text) {
    const json command = json::parse(text, nullptr, false);
    if (command.is_object() && writes_elsewhere(command)) {
        fuzz_outcome = "left out";
        return;
    }
    AbiEngine  engine;
    const bool loaded = engine.load(text);
    for (const json & event : engine.take_events()) {
        const std::string type = event.at("type");
        if (loaded != (type == "ready")) {
            fuzz_finding("what load returns is not what it tells: " + event.dump());
        }
        fuzz_outcome = "load: " + type;
        if (type == "engine_failed") {
            const std::string code = event.at("error").at("code");
            if (code == "internal" || code == "engine_aborted") {
                fuzz_finding(event.dump());
            }
            fuzz_outcome = "load: " + code + ": " + without_particulars(event.at("error").at("message"));
        }
    }
    if (loaded) {
        engine.submit(R"({"id":1,"operation":"query","prompt":"a b c","options":{"maxTokens":2}})");
        while (engine.tick(100) > 0) {
        }
    }
}

std::string seed_input(Random & random) {
    const int64_t id = random.between(1, 1000000);
    if (random.chance(0.1)) {
        return maker().load(MODEL_MARK);
    }
    return random.chance(0.8) ? maker().valid(id).text : maker().broken(id).text;
}

const json & odd_value(Random & random) {
    static const std::vector<json> values = [] {
        std::vector<json> made = {nullptr,
                                  true,
                                  false,
                                  0,
                                  1,
                                  -1,
                                  2,
                                  0.5,
                                  -0.0,
                                  1e300,
                                  -1e300,
                                  5e-324,
                                  9007199254740993,
                                  18446744073709551615u,
                                  INT64_MIN,
                                  4294967295,
                                  "",
                                  "a",
                                  "\n",
                                  std::string("a\0b", 3),
                                  "\xED\xA0\x80",
                                  "é",
                                  "😀",
                                  std::string(5000, 'x'),
                                  json::array(),
                                  json::object(),
                                  json({1, 2}),
                                  json({"a", "b"}),
                                  json({{"type", "text"}, {"text", "x"}}),
                                  "root ::= root",
                                  "root ::= \"a\"{9999}",
                                  "system",
                                  "{{",
                                  "%s%n",
                                  "../../x"};
        json              deep = 1;
        for (int i = 0; i < 200; i++) {
            deep = json::array({deep});
        }
        made.push_back(deep);
        const json declared = json::parse(hr_describe());
        for (const json & option : declared.at("options")) {
            made.push_back(option.at("name"));
            made.push_back(option.value("maximum", json()));
        }
        return made;
    }();
    return random.pick(values);
}

// Every value of a tree, the root first.
void collect(json & node, std::vector<json *> & into) {
    into.push_back(&node);
    if (node.is_structured()) {
        for (json & child : node) {
            collect(child, into);
        }
    }
}

void mutate_tree(json & tree, Random & random) {
    std::vector<json *> nodes;
    collect(tree, nodes);
    json & node = *random.pick(nodes);
    switch (random.below(5)) {
        case 0: node = json(*random.pick(nodes)); break;
        case 1:
            if (node.is_object()) {
                const json & name                                            = odd_value(random);
                node[name.is_string() ? name.get<std::string>() : "options"] = odd_value(random);
                break;
            }
            [[fallthrough]];
        case 2:
            if (node.is_array()) {
                node.push_back(odd_value(random));
                break;
            }
            [[fallthrough]];
        case 3:
            if (node.is_object() && !node.empty()) {
                node.erase(std::next(node.begin(), static_cast<ptrdiff_t>(random.below(node.size()))));
                break;
            }
            [[fallthrough]];
        default: node = odd_value(random);
    }
}

std::string mutate_bytes(std::string text, Random & random) {
    static const std::string odd[] = {
        "\"", "\\",   "\\u0000", "\\ud800",          "[",    "]",  "{", "}",         ",",  ":", "1e999",
        "-",  "\xFF", "\xC3",    "\xF4\x90\x80\x80", "null", "//", " ", "\"id\":2,", "NaN"};
    const size_t at   = random.below(text.size() + 1);
    const size_t size = random.below(std::min<size_t>(text.size() - at, 20) + 1);
    switch (random.below(4)) {
        case 0: return text.insert(at, random.pick(odd));
        case 1: return text.erase(at, size);
        case 2: return text.insert(at, text.substr(random.below(text.size() + 1), size));
        default:
            if (!text.empty()) {
                text[random.below(text.size())] = static_cast<char>(random.next());
            }
            return text;
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    static std::unique_ptr<Session> session;
    const std::string               text = placed(std::string(reinterpret_cast<const char *>(data), size));
    if (text.find("\"model\"") != std::string::npos) {
        load(text);
        return 0;
    }
    if (!session || session->worn()) {
        if (session) {
            session->drain();
        }
        session.reset();
        session = std::make_unique<Session>();
    }
    session->run(text);
    return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t * data, size_t size, size_t capacity, unsigned seed) {
    Random      random(seed);
    std::string text(reinterpret_cast<const char *>(data), size);
    if (size <= 1) {
        text = seed_input(random);
    } else if (json tree = json::parse(text, nullptr, false); !tree.is_discarded() && random.chance(0.75)) {
        mutate_tree(tree, random);
        text = tree.dump(-1, ' ', false, json::error_handler_t::replace);
    } else {
        text = mutate_bytes(std::move(text), random);
    }
    const size_t kept = std::min(text.size(), capacity);
    std::memcpy(data, text.data(), kept);
    return kept;
}
