// Keeps what llama.cpp and ggml log as errors, so that an Error can quote it.
//
// While one is alive on a thread, that thread's log lines go to it; otherwise they are dropped: a library
// does not write to its host's console.
#pragma once

#include <string>

namespace headrace {

class LogCapture {
  public:
    LogCapture();
    ~LogCapture();
    LogCapture(const LogCapture &)             = delete;
    LogCapture & operator=(const LogCapture &) = delete;

    // The last line logged as an error, without the name of the function that logged it; may be empty.
    const std::string & last_error() const { return last_error_; }

    // All error lines, each ended by a newline.
    const std::string & errors() const { return errors_; }

  private:
    static void receive(int level, const char * text);

    std::string  last_error_;
    std::string  errors_;
    LogCapture * outer_;
};

} // namespace headrace
