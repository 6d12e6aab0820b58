// The naming and ordering behind model_shards.h.
#include "engine/model_shards.h"

#include "engine/error.h"

#include <cctype>
#include <cstdio>

namespace headrace {

std::string file_name(const std::string & path) {
    const size_t slash = path.find_last_of('/');
    return slash == std::string::npos ? path : path.substr(slash + 1);
}

namespace {

std::string ending(size_t index, size_t count) {
    char text[64];
    std::snprintf(text, sizeof(text), "-%05zu-of-%05zu", index + 1, count);
    return text;
}

bool is_gguf_extension(const std::string & text) {
    std::string lower;
    for (const char letter : text) {
        lower += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    }
    return lower == ".gguf";
}

std::string told(const Shard & shard) {
    return file_name(shard.path) + " is shard " + std::to_string(shard.place.index + 1) + " of " +
           std::to_string(shard.place.count);
}

[[noreturn]] void refuse(const std::string & why) {
    throw Error(ErrorCode::invalid_request, why);
}

std::string missing(const std::vector<const Shard *> & found) {
    std::string list;
    for (size_t i = 0; i < found.size(); i++) {
        if (!found[i]) {
            list += (list.empty() ? "" : ", ") + std::to_string(i + 1);
        }
    }
    return list;
}

} // namespace

std::optional<std::vector<std::string>> sibling_paths(const Shard & shard) {
    const size_t dot = shard.path.find_last_of('.');
    if (dot == std::string::npos || !is_gguf_extension(shard.path.substr(dot))) {
        return std::nullopt;
    }
    const std::string stem = shard.path.substr(0, dot), extension = shard.path.substr(dot),
                      own = ending(shard.place.index, shard.place.count);
    if (!stem.ends_with(own)) {
        return std::nullopt;
    }
    const std::string        beginning = stem.substr(0, stem.size() - own.size());
    std::vector<std::string> paths;
    for (size_t i = 0; i < shard.place.count; i++) {
        paths.push_back(beginning + ending(i, shard.place.count) + extension);
    }
    return paths;
}

std::vector<size_t> shard_order(const std::vector<Shard> & shards) {
    if (shards.size() == 1 && shards.front().place.count == 1) {
        return {0};
    }
    const Shard &              first = shards.front();
    std::vector<const Shard *> found(first.place.count);
    for (const Shard & shard : shards) {
        if (shard.place.count == 1) {
            refuse(file_name(shard.path) + " is no shard: a list of files must be the shards of one model");
        }
        if (shard.place.count != first.place.count) {
            refuse(told(first) + ", but " + told(shard) + ": they are not of one model");
        }
        const Shard *& place = found.at(shard.place.index);
        if (place) {
            refuse(told(shard) + ", and so is " + file_name(place->path));
        }
        place = &shard;
    }
    if (const std::string numbers = missing(found); !numbers.empty()) {
        refuse(told(first) + ": all of them are needed, missing " + numbers);
    }
    std::vector<size_t> order;
    for (const Shard * shard : found) {
        order.push_back(static_cast<size_t>(shard - shards.data()));
    }
    return order;
}

} // namespace headrace
