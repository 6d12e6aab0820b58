// The log callback behind log_capture.h.
#include "engine/log_capture.h"

#include <llama.h>

#include <mutex>

namespace headrace {

static thread_local LogCapture * innermost = nullptr;

// "llama_model_load: error loading model: x" → "error loading model: x"
static std::string without_function_name(std::string line) {
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) {
        line.pop_back();
    }
    const size_t colon = line.find(": ");
    if (colon != std::string::npos && line.find(' ') > colon) {
        line.erase(0, colon + 2);
    }
    return line;
}

void LogCapture::receive(int level, const char * text) {
    if (level == GGML_LOG_LEVEL_ERROR && innermost) {
        innermost->errors_.push_back(without_function_name(text));
    }
}

std::string LogCapture::error_after(const std::string & beginning) const {
    for (const std::string & line : errors_) {
        if (const size_t at = line.find(beginning); at != std::string::npos) {
            return line.substr(at + beginning.size());
        }
    }
    return "";
}

ErrorCode failure_code(const std::string & words) {
    return words.find("alloc") != std::string::npos ? ErrorCode::out_of_memory : ErrorCode::model_invalid;
}

LogCapture::LogCapture() : outer_(innermost) {
    static std::once_flag installed;
    std::call_once(installed, [] {
        llama_log_set([](ggml_log_level level, const char * text, void *) { receive(level, text); }, nullptr);
    });
    innermost = this;
}

LogCapture::~LogCapture() {
    innermost = outer_;
}

} // namespace headrace
