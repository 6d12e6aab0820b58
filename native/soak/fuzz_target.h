// What a fuzz target and a driver owe each other; the two functions are libFuzzer's, by its names and meaning.
//
// Targets: fuzz_json.cpp, fuzz_gguf.cpp. Driver: fuzz_driver.cpp, with any compiler; no build links libFuzzer's.
// A target reads the model's path from HEADRACE_FUZZ_MODEL and writes into HEADRACE_FUZZ_FOLDER only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

// Runs one input. A broken promise of the engine ends the process.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size);

// Changes an input in place, at most to `capacity` bytes, and returns its new size. Without an input (size 0
// or 1) it gives one of the target's own: no corpus needs to be kept.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t * data, size_t size, size_t capacity, unsigned seed);

namespace headrace::soak {

// What came of the last input, in a few words: an input with a new outcome is worth keeping.
extern std::string fuzz_outcome;

std::string fuzz_setting(const char * name, const char * otherwise);

// A message without what differs from run to run: digits become #, what is quoted is left out.
std::string without_particulars(const std::string & text);

// Says what is wrong and ends the process the way a crash would.
[[noreturn]] void fuzz_finding(const std::string & what);

} // namespace headrace::soak
