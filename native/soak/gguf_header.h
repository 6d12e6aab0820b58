// GGUF headers for the fuzzer: one made from nothing, and any one taken apart into the places worth changing.
//
// Counterpart: tests/gguf_builder.py, which writes whole models for tests. Reads leniently: what a mutation has
// broken is taken apart as far as it goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace headrace::soak {

struct GgufPlace {
    enum Kind { number, length, text, type, count, dimension, offset } kind;
    size_t at;
    size_t size;
};

struct GgufSpan {
    size_t begin;
    size_t end;
};

struct GgufParts {
    std::vector<GgufPlace> places;
    std::vector<GgufSpan>  entries; // key and value
    std::vector<GgufSpan>  tensors; // declarations
    size_t                 end = 0; // of what could be read
};

GgufParts take_apart(const std::string & header);

// A llama model of one layer whose vocabulary is printable ASCII; the weights are left to the file.
std::string small_llama_header();

// The header of a whole file.
std::string header_of(const std::string & file);

// Declares each tensor's data to begin where the one before it ends, as llama.cpp wants it.
void mend_offsets(std::string & header);

} // namespace headrace::soak
