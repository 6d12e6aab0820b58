// A stack that std::regex cannot overflow.
//
// libstdc++ matches a regular expression by recursion, one level per character: tens of thousands of letters
// without a break end the process. Tokenisers of llama.cpp that split by std::regex meet such texts. Other
// standard libraries (WebAssembly's) do not recurse, and run the call where it is.
#pragma once

#include <cstddef>
#include <functional>

namespace headrace {

// Makes a call that matches texts of so many bytes in all. Throws what the call throws, and Error
// (out_of_memory) when there is no room for the stack.
void with_regex_stack(size_t bytes, const std::function<void()> & call);

} // namespace headrace
