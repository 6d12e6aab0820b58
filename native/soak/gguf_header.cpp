// The reading and writing behind gguf_header.h.
#include "soak/gguf_header.h"

#include <ggml.h>

#include <cstring>
#include <stdexcept>

namespace headrace::soak {

namespace {

enum ValueType : uint32_t { UINT32 = 4, INT32 = 5, FLOAT32 = 6, BOOL = 7, STRING = 8, ARRAY = 9 };

// Bytes of a value of each type; 0 for those with a length of their own.
constexpr size_t SIZES[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

constexpr size_t ALIGNMENT   = 32;
constexpr size_t MOST_PLACES = 4000; // of one array: a vocabulary's thousandth token is like its first

class Reader {
  public:
    explicit Reader(const std::string & data) : data_(data) {}

    template <class Number> Number read(GgufPlace::Kind kind) {
        Number number = 0;
        std::memcpy(&number, take(kind, sizeof(Number)), sizeof(Number));
        return number;
    }

    void skip(GgufPlace::Kind kind, size_t size) { take(kind, size); }

    void text() {
        const auto length = read<uint64_t>(GgufPlace::length);
        take(GgufPlace::text, length);
    }

    void value(uint32_t type) {
        if (type == STRING) {
            text();
        } else if (type == ARRAY) {
            const auto element = read<uint32_t>(GgufPlace::type);
            const auto count   = read<uint64_t>(GgufPlace::count);
            for (uint64_t i = 0; i < count; i++) {
                element == STRING ? text() : skip(GgufPlace::number, size_of(element));
            }
        } else {
            skip(GgufPlace::number, size_of(type));
        }
    }

    void tensor() {
        text();
        const auto dimensions = read<uint32_t>(GgufPlace::count);
        for (uint32_t i = 0; i < dimensions; i++) {
            read<uint64_t>(GgufPlace::dimension);
        }
        read<uint32_t>(GgufPlace::type);
        read<uint64_t>(GgufPlace::offset);
    }

    size_t    at = 0;
    GgufParts parts;

  private:
    static size_t size_of(uint32_t type) {
        if (type >= std::size(SIZES) || SIZES[type] == 0) {
            throw std::out_of_range("no such type");
        }
        return SIZES[type];
    }

    const char * take(GgufPlace::Kind kind, size_t size) {
        if (size > data_.size() - at) {
            throw std::out_of_range("the header ends");
        }
        if (parts.places.size() < MOST_PLACES || kind == GgufPlace::dimension || kind == GgufPlace::offset) {
            parts.places.push_back({kind, at, size});
        }
        at += size;
        return data_.data() + at - size;
    }

    const std::string & data_;
};

template <class Number> void put(std::string & into, Number number) {
    into.append(reinterpret_cast<const char *>(&number), sizeof(number));
}

void put_text(std::string & into, const std::string & text) {
    put(into, uint64_t{text.size()});
    into += text;
}

template <class Number>
void put_entry(std::string & into, const std::string & key, uint32_t type, Number number) {
    put_text(into, key);
    put(into, type);
    put(into, number);
}

void put_entry(std::string & into, const std::string & key, const std::string & text) {
    put_text(into, key);
    put(into, uint32_t{STRING});
    put_text(into, text);
}

void put_array(std::string & into, const std::string & key, uint32_t element, size_t count) {
    put_text(into, key);
    put(into, uint32_t{ARRAY});
    put(into, element);
    put(into, uint64_t{count});
}

} // namespace

GgufParts take_apart(const std::string & header) {
    Reader reader(header);
    try {
        reader.skip(GgufPlace::text, 4);
        reader.read<uint32_t>(GgufPlace::number);
        const auto tensors = reader.read<uint64_t>(GgufPlace::count);
        const auto entries = reader.read<uint64_t>(GgufPlace::count);
        for (uint64_t i = 0; i < entries; i++) {
            const size_t begin = reader.at;
            reader.text();
            reader.value(reader.read<uint32_t>(GgufPlace::type));
            reader.parts.entries.push_back({begin, reader.at});
        }
        for (uint64_t i = 0; i < tensors; i++) {
            const size_t begin = reader.at;
            reader.tensor();
            reader.parts.tensors.push_back({begin, reader.at});
        }
    } catch (const std::out_of_range &) {
        // What was read before this is what there is.
    }
    reader.parts.end = reader.at;
    return reader.parts;
}

std::string header_of(const std::string & file) {
    return file.substr(0, take_apart(file).end);
}

std::string small_llama_header() {
    constexpr uint32_t WIDTH = 32;
    constexpr char     FIRST = '!';
    constexpr char     LAST  = '~';
    constexpr uint32_t WORDS = LAST - FIRST + 3; // and the space, and the end

    std::string entries;
    size_t      entry_count = 0;
    const auto  integer     = [&](const char * key, uint32_t number) {
        put_entry(entries, key, UINT32, number);
        entry_count++;
    };
    const auto text = [&](const char * key, const char * value) {
        put_entry(entries, key, std::string(value));
        entry_count++;
    };
    text("general.architecture", "llama");
    text("general.name", "small");
    integer("llama.block_count", 1);
    integer("llama.context_length", 128);
    integer("llama.embedding_length", WIDTH);
    integer("llama.feed_forward_length", WIDTH);
    integer("llama.attention.head_count", 2);
    integer("llama.attention.head_count_kv", 1);
    integer("llama.rope.dimension_count", WIDTH / 2);
    integer("general.alignment", ALIGNMENT);
    integer("tokenizer.ggml.eos_token_id", WORDS - 1);
    put_entry(entries, "llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-6f);
    put_entry(entries, "llama.rope.freq_base", FLOAT32, 10000.0f);
    put_entry(entries, "tokenizer.ggml.add_bos_token", BOOL, uint8_t{0});
    entry_count += 3;
    text("tokenizer.ggml.model", "gpt2");
    text("tokenizer.ggml.pre", "smollm");
    text("tokenizer.chat_template", "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}");
    put_array(entries, "tokenizer.ggml.tokens", STRING, WORDS);
    for (char c = FIRST; c <= LAST; c++) {
        put_text(entries, std::string(1, c));
    }
    put_text(entries, "\u0120");
    put_text(entries, "<|end|>");
    put_array(entries, "tokenizer.ggml.token_type", INT32, WORDS);
    for (uint32_t i = 0; i < WORDS; i++) {
        put(entries, int32_t{i + 1 == WORDS ? 3 : 1});
    }
    put_array(entries, "tokenizer.ggml.merges", STRING, 2);
    put_text(entries, "a b");
    put_text(entries, "\u0120 a");
    entry_count += 3;

    std::string tensors;
    size_t      tensor_count = 0;
    const auto  tensor       = [&](const std::string & name, std::vector<uint64_t> shape) {
        put_text(tensors, name + ".weight");
        put(tensors, static_cast<uint32_t>(shape.size()));
        for (const uint64_t size : shape) {
            put(tensors, size);
        }
        put(tensors, uint32_t{GGML_TYPE_F32});
        put(tensors, uint64_t{0});
        tensor_count++;
    };
    tensor("token_embd", {WIDTH, WORDS});
    tensor("output_norm", {WIDTH});
    tensor("output", {WIDTH, WORDS});
    tensor("blk.0.attn_norm", {WIDTH});
    tensor("blk.0.ffn_norm", {WIDTH});
    tensor("blk.0.attn_q", {WIDTH, WIDTH});
    tensor("blk.0.attn_k", {WIDTH, WIDTH / 2});
    tensor("blk.0.attn_v", {WIDTH, WIDTH / 2});
    tensor("blk.0.attn_output", {WIDTH, WIDTH});
    tensor("blk.0.ffn_gate", {WIDTH, WIDTH});
    tensor("blk.0.ffn_up", {WIDTH, WIDTH});
    tensor("blk.0.ffn_down", {WIDTH, WIDTH});

    std::string header = "GGUF";
    put(header, uint32_t{3});
    put(header, uint64_t{tensor_count});
    put(header, uint64_t{entry_count});
    header += entries + tensors;
    mend_offsets(header);
    return header;
}

void mend_offsets(std::string & header) {
    const GgufParts parts = take_apart(header);
    uint64_t        next  = 0;
    for (const GgufSpan & tensor : parts.tensors) {
        uint64_t name_size = 0;
        uint32_t count     = 0;
        uint32_t type      = 0;
        size_t   at        = tensor.begin;
        std::memcpy(&name_size, &header[at], sizeof(name_size));
        at += sizeof(name_size) + name_size;
        std::memcpy(&count, &header[at], sizeof(count));
        at += sizeof(count);
        uint64_t elements = 1;
        for (uint32_t i = 0; i < count; i++, at += sizeof(uint64_t)) {
            uint64_t size = 0;
            std::memcpy(&size, &header[at], sizeof(size));
            elements *= size; // wraps where it is too large: then it is refused anyway
        }
        std::memcpy(&type, &header[at], sizeof(type));
        std::memcpy(&header[tensor.end - sizeof(next)], &next, sizeof(next));
        const bool known = type < GGML_TYPE_COUNT && ggml_blck_size(static_cast<ggml_type>(type)) > 0;
        if (known) {
            const auto     kind = static_cast<ggml_type>(type);
            const uint64_t bytes =
                elements / static_cast<uint64_t>(ggml_blck_size(kind)) * ggml_type_size(kind);
            next += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        }
    }
}

} // namespace headrace::soak
