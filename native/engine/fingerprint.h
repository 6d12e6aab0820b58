// What a stored KV-cache state belongs to: the bytes of a model, and the settings it ran with.
//
// From the bytes, never from path, size or time: a file that was replaced must not be answered from the old
// one's states. Used by whoever makes a PrefixStore (prefix_store.h), which only compares fingerprints.
#pragma once

#include <functional>
#include <span>
#include <string>

namespace headrace {

// Told how much of the file has been read, 0 to 1; returning false ends it.
using FingerprintProgress = std::function<bool(double)>;

// 32 hexadecimal digits over all bytes of the file. Reads it once, in pieces of 1 MiB: as fast as the disk,
// for a file in the page cache some GB/s.
// Throws Error (model_not_found if it cannot be read, cancelled if progress said so).
std::string fingerprint_file(const std::string & path, const FingerprintProgress & progress = {});

// Of a model in one file or several, in the order of loading: the only file's, or all of them combined.
// Progress counts within each file.
std::string fingerprint_files(std::span<const std::string> paths, const FingerprintProgress & progress = {});

// One fingerprint of many parts, in this order: those of files, and texts of settings (context and cache
// types, rope, adapters, …). {"a", "bc"} and {"ab", "c"} differ.
std::string combine_fingerprints(std::span<const std::string> parts);

} // namespace headrace
