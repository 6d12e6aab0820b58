// The checks behind model_file.h.
#include "engine/model_file.h"

#include "engine/error.h"
#include "engine/log_capture.h"
#include "engine/model_shards.h"

#include <ggml-cpu.h>
#include <gguf.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace headrace {

namespace {

struct GgufDeleter {
    void operator()(gguf_context * context) const { gguf_free(context); }
};
using GgufPtr = std::unique_ptr<gguf_context, GgufDeleter>;

struct Header {
    Shard    shard;
    uint64_t file_bytes = 0;
    GgufPtr  gguf;
};
using Headers = std::vector<Header>;

[[noreturn]] void invalid(const std::string & why) {
    throw Error(ErrorCode::model_invalid, why);
}

// As many of `size` bytes as there are.
std::string read_bytes(const std::string & path, uint64_t offset, size_t size) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw Error(ErrorCode::model_not_found, "cannot open " + path + ": " + std::strerror(errno));
    }
    file.seekg(static_cast<std::streamoff>(offset));
    std::string bytes(size, '\0');
    file.read(bytes.data(), static_cast<std::streamsize>(size));
    bytes.resize(static_cast<size_t>(file.gcount()));
    return bytes;
}

void check_start(const std::string & start) {
    if (start.starts_with("GGUF")) {
        return;
    }
    if (start.empty()) {
        invalid("the file is empty");
    }
    if (start.starts_with("version https://git-lfs")) {
        invalid("this is a Git LFS pointer, not the model it points to: download the file itself");
    }
    const size_t first = start.find_first_not_of(" \t\r\n");
    if (first != std::string::npos && start[first] == '<') {
        invalid("this is an HTML page, not a model: the download probably led to an error or login page");
    }
    if (start.starts_with("FUGG")) {
        invalid("this GGUF file is big-endian, which is not supported");
    }
    invalid("this is not a GGUF file: it does not begin with the letters GGUF");
}

// The value of a non-negative integer key of any width; nothing if absent or not an integer.
std::optional<uint64_t> find_integer(const gguf_context * gguf, const std::string & key) {
    const int64_t id = gguf_find_key(gguf, key.c_str());
    if (id < 0) {
        return std::nullopt;
    }
    switch (gguf_get_kv_type(gguf, id)) {
        case GGUF_TYPE_UINT16: return gguf_get_val_u16(gguf, id);
        case GGUF_TYPE_UINT32: return gguf_get_val_u32(gguf, id);
        case GGUF_TYPE_UINT64: return gguf_get_val_u64(gguf, id);
        case GGUF_TYPE_INT32: return static_cast<uint64_t>(std::max(gguf_get_val_i32(gguf, id), 0));
        case GGUF_TYPE_INT64: return static_cast<uint64_t>(std::max<int64_t>(gguf_get_val_i64(gguf, id), 0));
        default: return std::nullopt;
    }
}

// As find_integer, but the key may hold one for each layer.
std::vector<uint64_t> find_integers(const gguf_context * gguf, const std::string & key) {
    const int64_t id = gguf_find_key(gguf, key.c_str());
    if (id < 0 || gguf_get_kv_type(gguf, id) != GGUF_TYPE_ARRAY) {
        const auto one = find_integer(gguf, key);
        return one ? std::vector<uint64_t>{*one} : std::vector<uint64_t>{};
    }
    const gguf_type type = gguf_get_arr_type(gguf, id);
    if (type != GGUF_TYPE_UINT32 && type != GGUF_TYPE_INT32) {
        return {}; // llama.cpp refuses them
    }
    std::vector<uint64_t> values(gguf_get_arr_n(gguf, id));
    for (size_t i = 0; i < values.size(); i++) {
        const int32_t value = static_cast<const int32_t *>(gguf_get_arr_data(gguf, id))[i];
        values[i]           = type == GGUF_TYPE_UINT32 ? static_cast<uint32_t>(value)
                                                       : static_cast<uint64_t>(std::max(value, 0));
    }
    return values;
}

// Where the last tensor's data ends in the file.
uint64_t tensors_end(const gguf_context * gguf) {
    uint64_t end = gguf_get_data_offset(gguf);
    for (int64_t i = 0; i < gguf_get_n_tensors(gguf); i++) {
        const uint64_t begin = gguf_get_data_offset(gguf) + gguf_get_tensor_offset(gguf, i);
        const uint64_t size  = gguf_get_tensor_size(gguf, i);
        end                  = std::max(end, begin + std::min(size, UINT64_MAX - begin));
    }
    return end;
}

void check_tensors_are_there(const Header & header) {
    const bool none = gguf_get_n_tensors(header.gguf.get()) == 0;
    if (none && header.shard.place.count == 1) {
        invalid("the file holds no tensors: it is not a whole model");
    }
    const uint64_t needed = none ? 0 : tensors_end(header.gguf.get());
    if (needed > header.file_bytes) {
        throw Error(ErrorCode::model_truncated,
                    "the file is cut short: its tensors need " + std::to_string(needed) + " bytes, it has " +
                        std::to_string(header.file_bytes),
                    {{"expectedBytes", static_cast<double>(needed)},
                     {"actualBytes", static_cast<double>(header.file_bytes)}});
    }
}

// Shards that were joined to one file, as parts of a cut file would be: only the first one's tensors are found.
void check_not_joined(const Header & header) {
    if (header.shard.place.count == 1) {
        return;
    }
    const uint64_t end       = tensors_end(header.gguf.get());
    const uint64_t alignment = gguf_get_alignment(header.gguf.get());
    const uint64_t padded    = end + (alignment - end % alignment) % alignment;
    for (const uint64_t offset : {end, padded}) {
        if (offset < header.file_bytes && read_bytes(header.shard.path, offset, 4) == "GGUF") {
            invalid("the file is shard " + std::to_string(header.shard.place.index + 1) + " of " +
                    std::to_string(header.shard.place.count) +
                    " with others joined to it: give the shards as separate files");
        }
    }
}

// ggml multiplies by weights of any type and calls a null pointer for those it has no kernel for.
void check_types(const gguf_context * gguf) {
    for (int64_t i = 0; i < gguf_get_n_tensors(gguf); i++) {
        const std::string name = gguf_get_tensor_name(gguf, i);
        const ggml_type   type = gguf_get_tensor_type(gguf, i);
        if (name.ends_with(".weight") && !ggml_get_type_traits_cpu(type)->vec_dot) {
            invalid("the weights " + name + " are of type " + ggml_type_name(type) +
                    ", by which nothing can multiply");
        }
    }
}

bool has_tensor(const Headers & headers, const std::string & part) {
    for (const Header & header : headers) {
        for (int64_t i = 0; i < gguf_get_n_tensors(header.gguf.get()); i++) {
            const std::string_view name = gguf_get_tensor_name(header.gguf.get(), i);
            if (name.find(part) != std::string_view::npos) {
                return true;
            }
        }
    }
    return false;
}

// llama.cpp divides by the number of heads without a look. Models and layers without attention say 0, rightly.
void check_heads(const Headers & headers, const std::string & architecture) {
    const gguf_context * gguf = headers.front().gguf.get();
    const std::string    key  = architecture + ".attention.head_count";
    if (!has_tensor(headers, ".attn_q")) {
        return;
    }
    if (gguf_find_key(gguf, key.c_str()) < 0) {
        invalid("the file does not say how many heads its attention has (" + key + ")");
    }
    const auto width = find_integer(gguf, architecture + ".embedding_length");
    const auto heads = find_integers(gguf, key);
    for (size_t i = 0; width && i < heads.size(); i++) {
        const std::string layer = heads.size() > 1 ? "blk." + std::to_string(i) + ".attn_q" : ".attn_q";
        if (heads[i] > *width || (heads[i] == 0 && has_tensor(headers, layer))) {
            invalid("the file says that " + key + " is " + std::to_string(heads[i]) +
                    ", of an embedding_length of " + std::to_string(*width));
        }
    }
}

// llama.cpp has room for so many (src/llama-hparams.h), and gives up on more with the text of an assertion.
constexpr uint64_t MAX_LAYERS  = 512;
constexpr uint64_t MAX_EXPERTS = 1024;

void check_at_most(const std::string & key, uint64_t value, uint64_t limit) {
    if (value > limit) {
        invalid("the file says that " + key + " is " + std::to_string(value) + ", which can be at most " +
                std::to_string(limit));
    }
}

void check_experts(const gguf_context * gguf, const std::string & architecture) {
    const std::string count_key = architecture + ".expert_count",
                      used_key  = architecture + ".expert_used_count";
    const uint64_t    count     = find_integer(gguf, count_key).value_or(0);
    check_at_most(count_key, count, MAX_EXPERTS);
    const auto used = find_integer(gguf, used_key);
    if (!used) {
        return; // absent, or one for each layer
    }
    check_at_most(used_key, *used, count);
    if (count > 0 && *used == 0) {
        invalid("the file says that " + used_key + " is 0, of an expert_count of " + std::to_string(count));
    }
}

// The first shard has the keys of the whole model.
void check_shape(const Headers & headers) {
    const gguf_context * gguf = headers.front().gguf.get();

    const int64_t id = gguf_find_key(gguf, "general.architecture");
    if (id < 0 || gguf_get_kv_type(gguf, id) != GGUF_TYPE_STRING) {
        invalid("the file does not say which architecture it is (general.architecture)");
    }
    const std::string architecture = gguf_get_val_str(gguf, id);
    for (const char * name : {".block_count", ".embedding_length", ".context_length"}) {
        if (find_integer(gguf, architecture + name).value_or(1) == 0) {
            invalid("the file says that " + architecture + name + " is 0");
        }
    }
    const std::string layers = architecture + ".block_count";
    check_at_most(layers, find_integer(gguf, layers).value_or(1), MAX_LAYERS);
    check_experts(gguf, architecture);
    check_heads(headers, architecture);
}

// The value of split.no or split.count, which llama.cpp reads as 16 bits and nothing else.
size_t shard_number(const gguf_context * gguf, const char * key, size_t absent) {
    const int64_t id = gguf_find_key(gguf, key);
    if (id >= 0 && gguf_get_kv_type(gguf, id) != GGUF_TYPE_UINT16) {
        invalid(std::string("the file's ") + key + " is no 16-bit number");
    }
    return id < 0 ? absent : gguf_get_val_u16(gguf, id);
}

ShardPlace shard_place(const gguf_context * gguf) {
    const size_t count = shard_number(gguf, "split.count", 1);
    if (count <= 1) {
        return {};
    }
    const size_t index = shard_number(gguf, "split.no", count);
    if (index >= count) {
        invalid("the file is one of " + std::to_string(count) + " shards, but does not say which (split.no)");
    }
    return {index, count};
}

Header read_header(const std::string & path) {
    std::error_code failure;
    if (!std::filesystem::exists(path, failure)) {
        throw Error(ErrorCode::model_not_found, "there is no file " + path);
    }
    if (!std::filesystem::is_regular_file(path, failure)) {
        throw Error(ErrorCode::model_not_found, path + " is not a file");
    }
    check_start(read_bytes(path, 0, 64));
    Header header;
    header.shard.path = path;
    header.file_bytes = std::filesystem::file_size(path);

    LogCapture log;
    header.gguf.reset(gguf_init_from_file(path.c_str(), {/*no_alloc*/ true, /*ctx*/ nullptr}));
    if (!header.gguf) {
        const std::string cause = log.first_error();
        if (cause.starts_with("failed to read") ||
            cause.find("exceeds remaining file size") != std::string::npos) {
            throw Error(ErrorCode::model_truncated, "the file is cut short, within its header",
                        {{"actualBytes", static_cast<double>(header.file_bytes)}});
        }
        invalid("the file's header is damaged: " + cause);
    }
    header.shard.place = shard_place(header.gguf.get());
    return header;
}

Header checked_header(const std::string & path) {
    Header header = read_header(path);
    check_not_joined(header);
    check_tensors_are_there(header);
    check_types(header.gguf.get());
    return header;
}

Header checked_shard(const std::string & path) {
    try {
        return checked_header(path);
    } catch (const Error & error) {
        throw Error(error.code, file_name(path) + ": " + error.what(), error.detail);
    }
}

// Reads the other shards of a file's model, which lie beside it.
void add_siblings(Headers & headers) {
    const Shard shard    = headers.front().shard;
    const auto  siblings = sibling_paths(shard);
    if (!siblings) {
        return; // shard_order says what is missing
    }
    for (size_t i = 0; i < siblings->size(); i++) {
        if (i == shard.place.index) {
            continue;
        }
        std::error_code failure;
        if (!std::filesystem::exists((*siblings)[i], failure)) {
            throw Error(ErrorCode::model_not_found,
                        file_name(shard.path) + " is shard " + std::to_string(shard.place.index + 1) +
                            " of " + std::to_string(shard.place.count) + ", and there is no file " +
                            file_name((*siblings)[i]) + " beside it");
        }
        headers.push_back(checked_shard((*siblings)[i]));
    }
}

Headers ordered(Headers headers) {
    std::vector<Shard> shards;
    for (const Header & header : headers) {
        shards.push_back(header.shard);
    }
    Headers sorted;
    for (const size_t index : shard_order(shards)) {
        sorted.push_back(std::move(headers[index]));
    }
    return sorted;
}

} // namespace

CheckedModel check_model_files(const std::vector<std::string> & paths) {
    Headers headers;
    for (const std::string & path : paths) {
        headers.push_back(paths.size() == 1 ? checked_header(path) : checked_shard(path));
    }
    if (headers.size() == 1 && headers.front().shard.place.count > 1) {
        add_siblings(headers);
    }
    headers = ordered(std::move(headers));
    check_shape(headers);
    CheckedModel model;
    model.alignment = gguf_get_alignment(headers.front().gguf.get());
    for (const Header & header : headers) {
        model.paths.push_back(header.shard.path);
        model.alignment     = std::min(model.alignment, gguf_get_alignment(header.gguf.get()));
        const int64_t table = gguf_find_tensor(header.gguf.get(), "token_embd.weight");
        if (table >= 0) {
            const int64_t * shape = gguf_get_tensor_ne(header.gguf.get(), table);
            model.embedding_type  = gguf_get_tensor_type(header.gguf.get(), table);
            model.embedding_width = shape[0];
            model.embedding_rows  = shape[1];
        }
    }
    return model;
}

} // namespace headrace
