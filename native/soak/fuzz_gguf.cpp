// Fuzzes the loader with damaged GGUF headers: counts, types, lengths, shapes, offsets, names, values.
//
// Inputs are headers; the file that is loaded has one followed by zeros, as large as the real model's data. What
// loads is asked for three tokens. A finding is a crash or a hang: any typed error is an answer, that of an engine
// which gave up on a file that contradicts itself included (ARCHITECTURE.md, "A broken forward pass").
#include "soak/abi_engine.h"
#include "soak/fuzz_target.h"
#include "soak/gguf_header.h"
#include "soak/random.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

using namespace headrace::soak;
using nlohmann::json;

namespace {

constexpr size_t DATA_BYTES = size_t{4} << 20;

const std::string & real_header() {
    static const std::string header = [] {
        std::ostringstream text;
        text << std::ifstream(fuzz_setting("HEADRACE_FUZZ_MODEL", ""), std::ios::binary).rdbuf();
        return header_of(text.str());
    }();
    return header;
}

std::string told(const json & events) {
    std::string outcome;
    for (const json & event : events) {
        const std::string type = event.at("type");
        if (event.contains("error")) {
            const json & error = event.at("error");
            outcome            = type + ": " + error.at("code").get<std::string>() + ": " +
                                 without_particulars(error.at("message"));
        } else if (type != "tokens") {
            outcome = type;
        }
    }
    return outcome;
}

uint64_t odd_number(Random & random, uint64_t old) {
    constexpr uint64_t odd[] = {0,           1,          2,          3,          7,          31,
                                33,          64,         255,        256,        4095,       65535,
                                65536,       INT32_MAX,  1u << 31,   UINT32_MAX, 1ull << 32, 1ull << 62,
                                INT64_MAX,   1ull << 63, UINT64_MAX, 1ull << 20, 1ull << 30, 1ull << 40,
                                0x7FC00000u, 0x7F800000u};
    switch (random.below(5)) {
        case 0: return old + 1;
        case 1: return old - 1;
        case 2: return old * 2;
        case 3: return old / 2;
        default: return random.pick(odd);
    }
}

// Changes the text of a string place, and mostly the length before it as well.
void change_text(std::string & header, const GgufPlace & place, const GgufParts & parts, Random & random) {
    static const std::string odd[] = {
        "",       "\0",       "general.architecture", "blk.0.attn_q.weight", "{{ x }}",
        "{% for", "\xFF\xFE", std::string(70, 'n'),   "llama.block_count",   "1e9"};
    std::string text = header.substr(place.at, place.size);
    switch (random.below(4)) {
        case 0: text = random.pick(odd); break;
        case 1: {
            const GgufPlace & other = random.pick(parts.places);
            text                    = header.substr(other.at, std::min<size_t>(other.size, 200));
            break;
        }
        case 2: text += static_cast<char>(random.next()); break;
        default:
            if (!text.empty()) {
                text[random.below(text.size())] = static_cast<char>(random.next());
            }
    }
    if (place.at >= 8 && random.chance(0.95)) {
        const uint64_t size = text.size();
        std::memcpy(&header[place.at - sizeof(size)], &size, sizeof(size));
    }
    header.replace(place.at, place.size, text);
}

void change_place(std::string & header, const GgufParts & parts, Random & random) {
    // Half of the time something other than a vocabulary's words, of which there are so many.
    const GgufPlace place = random.chance(0.5)
                                ? random.pick(parts.places)
                                : parts.places[random.below(std::min<size_t>(parts.places.size(), 120))];
    if (place.kind == GgufPlace::text) {
        change_text(header, place, parts, random);
        return;
    }
    uint64_t     number = 0;
    const size_t size   = std::min(place.size, sizeof(number));
    std::memcpy(&number, &header[place.at], size);
    number = place.kind == GgufPlace::type ? random.below(45) : odd_number(random, number);
    std::memcpy(&header[place.at], &number, size);
}

// Leaves out, doubles or moves an entry or a tensor; the count in front mostly follows.
void change_list(std::string & header, const GgufParts & parts, Random & random) {
    const bool     tensor = random.chance(0.5);
    const auto &   list   = tensor ? parts.tensors : parts.entries;
    const size_t   at     = tensor ? 8 : 16;
    const GgufSpan span   = random.pick(list);
    uint64_t       count  = 0;
    std::memcpy(&count, &header[at], sizeof(count));
    const std::string text = header.substr(span.begin, span.end - span.begin);
    if (random.chance(0.6)) {
        header.erase(span.begin, text.size());
        count--;
    } else {
        header.insert(random.pick(list).begin, text);
        count++;
    }
    if (random.chance(0.95)) {
        std::memcpy(&header[at], &count, sizeof(count));
    }
}

// Another architecture's loader and graph, on the same keys and tensors.
void change_architecture(std::string & header, const GgufParts & parts, Random & random) {
    static const std::string names[] = {
        "llama", "qwen2",  "qwen3", "qwen3moe",   "gemma",     "gemma2",  "gemma3",
        "phi3",  "falcon", "gpt2",  "mamba",      "mamba2",    "rwkv6",   "rwkv7",
        "bert",  "t5",     "olmo2", "deepseek2",  "granite",   "jamba",   "nanbeige",
        "lfm2",  "mpt",    "bloom", "starcoder2", "command-r", "smollm3", "apertus"};
    static const std::string present[] = {"llama", "qwen3moe"};
    const std::string &      name      = random.pick(names);
    for (size_t i = parts.places.size(); i-- > 0;) {
        const GgufPlace & place = parts.places[i];
        if (place.kind != GgufPlace::text || place.at < 8) {
            continue;
        }
        std::string text = header.substr(place.at, place.size);
        for (const std::string & old : present) {
            if (text == old || text.starts_with(old + ".")) {
                text.replace(0, old.size(), name);
                const uint64_t size = text.size();
                header.replace(place.at, place.size, text);
                std::memcpy(&header[place.at - sizeof(size)], &size, sizeof(size));
                break;
            }
        }
    }
}

void change_bytes(std::string & header, Random & random) {
    const size_t at = random.below(header.size());
    switch (random.below(3)) {
        case 0: header[at] = static_cast<char>(random.next()); break;
        case 1: header.resize(at); break;
        default: header.insert(at, 1 + random.below(9), static_cast<char>(random.next()));
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    static const std::string path = fuzz_setting("HEADRACE_FUZZ_FOLDER", ".") + "/fuzzed.gguf";
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char *>(data), static_cast<std::streamsize>(size));
    std::filesystem::resize_file(path, (size + 31) / 32 * 32 + DATA_BYTES);

    AbiEngine engine;
    // Two threads now and then: an assertion in a compute thread takes another way out.
    const bool several = size % 8 == 0;
    // Weights of zeros make logits that are all the same: a fault that is meant to be told.
    const json options = {{"contextSize", 32}, {"threads", several ? 2 : 1}, {"healthWatch", "off"}};
    const bool loaded  = engine.load(json({{"model", path}, {"options", options}}).dump());
    fuzz_outcome       = told(engine.take_events());
    if (loaded) {
        engine.submit(R"({"id":1,"operation":"query","prompt":"abc","options":{"maxTokens":3}})");
        for (int ticks = 0; ticks < 100 && engine.tick(1000) > 0; ticks++) {
        }
        fuzz_outcome = "loaded, " + told(engine.take_events());
    }
    return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t * data, size_t size, size_t capacity, unsigned seed) {
    Random      random(seed);
    std::string header(reinterpret_cast<const char *>(data), size);
    if (size <= 1) {
        header = random.chance(0.9) ? small_llama_header() : real_header();
    } else {
        const GgufParts parts = take_apart(header);
        const double    kind  = random.share();
        if (kind < 0.05) {
            change_bytes(header, random);
        } else if (kind < 0.15) {
            change_architecture(header, parts, random);
        } else if (kind < 0.30 && !parts.tensors.empty() && !parts.entries.empty()) {
            change_list(header, parts, random);
        } else if (!parts.places.empty()) {
            change_place(header, parts, random);
        }
        if (random.chance(0.8)) {
            mend_offsets(header);
        }
    }
    const size_t kept = std::min(header.size(), capacity);
    std::memcpy(data, header.data(), kept);
    return kept;
}
