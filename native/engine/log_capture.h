// Keeps what llama.cpp and ggml log as errors, so that an Error can quote it.
//
// While one is alive on a thread, that thread's log lines go to it; otherwise they are dropped: a library
// does not write to its host's console.
#pragma once

#include "engine/error.h"

#include <string>
#include <vector>

namespace headrace {

class LogCapture {
  public:
    LogCapture();
    ~LogCapture();
    LogCapture(const LogCapture &)             = delete;
    LogCapture & operator=(const LogCapture &) = delete;

    // The first line logged as an error: the cause, where later lines tell who gave up because of it.
    // Without the name of the function that logged it; empty if there is none.
    std::string first_error() const { return errors_.empty() ? "" : errors_.front(); }

    // What follows `beginning` in the first error line that has it; empty if none has.
    std::string error_after(const std::string & beginning) const;

  private:
    static void receive(int level, const char * text);

    std::vector<std::string> errors_;
    LogCapture *             outer_;
};

// The code of a failure that llama.cpp only tells in words: out_of_memory or model_invalid.
ErrorCode failure_code(const std::string & words);

} // namespace headrace
