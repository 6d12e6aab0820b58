// llama.cpp's test-backend-ops for a page: its main(), called with arguments, with ggml-webgpu as the backend to test.
//
// Counterparts: bench/backend_program.js, the worker that calls this; bench/backend_program.py, which gives the arguments.
// The tests are llama.cpp's own, unchanged: CMakeLists.txt only gives their main() another name.
#include <ggml-backend.h>
#include <ggml-webgpu.h>

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

int test_backend_ops_main(int argc, char ** argv);

// arguments: one a line. Gives what main() gives: 0 if every case passed. Called so that it can be suspended.
extern "C" __attribute__((used, export_name("hr_backend_ops"))) int hr_backend_ops(const char * arguments) {
    static const bool registered = [] {
        ggml_backend_register(ggml_backend_webgpu_reg());
        return true;
    }();
    (void)registered;
    std::vector<std::string> texts{"test-backend-ops"};
    std::istringstream       lines{arguments};
    for (std::string line; std::getline(lines, line);) {
        texts.push_back(line);
    }
    std::vector<char *> argv;
    for (std::string & text : texts) {
        argv.push_back(text.data());
    }
    argv.push_back(nullptr);
    const int status = test_backend_ops_main(static_cast<int>(texts.size()), argv.data());
    std::fflush(stdout);
    return status;
}
