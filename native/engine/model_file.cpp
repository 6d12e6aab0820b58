// The checks behind model_file.h.
#include "engine/model_file.h"

#include "engine/error.h"
#include "engine/log_capture.h"

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

[[noreturn]] void invalid(const std::string & why) {
    throw Error(ErrorCode::model_invalid, why);
}

std::string read_start(const std::string & path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw Error(ErrorCode::model_not_found, "cannot open " + path + ": " + std::strerror(errno));
    }
    std::string start(64, '\0');
    file.read(start.data(), static_cast<std::streamsize>(start.size()));
    start.resize(static_cast<size_t>(file.gcount()));
    return start;
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

void check_tensors_are_there(const gguf_context * gguf, uint64_t file_bytes) {
    const int64_t count = gguf_get_n_tensors(gguf);
    if (count == 0) {
        invalid("the file holds no tensors: it is not a whole model");
    }
    uint64_t needed = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint64_t begin = gguf_get_data_offset(gguf) + gguf_get_tensor_offset(gguf, i);
        const uint64_t size  = gguf_get_tensor_size(gguf, i);
        needed               = std::max(needed, begin + std::min(size, UINT64_MAX - begin));
    }
    if (needed > file_bytes) {
        throw Error(ErrorCode::model_truncated,
                    "the file is cut short: its tensors need " + std::to_string(needed) + " bytes, it has " +
                        std::to_string(file_bytes),
                    {{"expectedBytes", static_cast<double>(needed)},
                     {"actualBytes", static_cast<double>(file_bytes)}});
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

bool has_tensor(const gguf_context * gguf, const std::string & part) {
    for (int64_t i = 0; i < gguf_get_n_tensors(gguf); i++) {
        if (std::string_view(gguf_get_tensor_name(gguf, i)).find(part) != std::string_view::npos) {
            return true;
        }
    }
    return false;
}

// llama.cpp divides by the number of heads without a look. Models and layers without attention say 0, rightly.
void check_heads(const gguf_context * gguf, const std::string & architecture) {
    const std::string key = architecture + ".attention.head_count";
    if (!has_tensor(gguf, ".attn_q")) {
        return;
    }
    if (gguf_find_key(gguf, key.c_str()) < 0) {
        invalid("the file does not say how many heads its attention has (" + key + ")");
    }
    const auto width = find_integer(gguf, architecture + ".embedding_length");
    const auto heads = find_integers(gguf, key);
    for (size_t i = 0; width && i < heads.size(); i++) {
        const std::string layer = heads.size() > 1 ? "blk." + std::to_string(i) + ".attn_q" : ".attn_q";
        if (heads[i] > *width || (heads[i] == 0 && has_tensor(gguf, layer))) {
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

void check_shape(const gguf_context * gguf) {
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
    check_heads(gguf, architecture);
}

} // namespace

size_t check_model_file(const std::string & path) {
    std::error_code failure;
    if (!std::filesystem::exists(path, failure)) {
        throw Error(ErrorCode::model_not_found, "there is no file " + path);
    }
    if (!std::filesystem::is_regular_file(path, failure)) {
        throw Error(ErrorCode::model_not_found, path + " is not a file");
    }
    check_start(read_start(path));
    const uint64_t file_bytes = std::filesystem::file_size(path);

    LogCapture    log;
    const GgufPtr gguf(gguf_init_from_file(path.c_str(), {/*no_alloc*/ true, /*ctx*/ nullptr}));
    if (!gguf) {
        const std::string cause = log.first_error();
        if (cause.starts_with("failed to read") ||
            cause.find("exceeds remaining file size") != std::string::npos) {
            throw Error(ErrorCode::model_truncated, "the file is cut short, within its header",
                        {{"actualBytes", static_cast<double>(file_bytes)}});
        }
        invalid("the file's header is damaged: " + cause);
    }
    check_tensors_are_there(gguf.get(), file_bytes);
    check_types(gguf.get());
    check_shape(gguf.get());
    return gguf_get_alignment(gguf.get());
}

} // namespace headrace
