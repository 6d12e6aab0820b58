// The program headrace_simulator: a scenario as one line of JSON in, its outcome as one line of JSON out,
// until the input ends. What cannot be simulated is answered by {"error": {"code", "message"}}.
#include "simulator/scenario_json.h"
#include "simulator/simulation.h"

#include <nlohmann/json.hpp>

#include <iostream>
#include <string>

using namespace headrace;

static std::string answer(const std::string & line) {
    try {
        return write_outcome(simulate(read_scenario(line)));
    } catch (const Error & error) {
        const nlohmann::json told = {
            {"error", {{"code", error_name(error.code)}, {"message", error.what()}}}};
        return told.dump();
    }
}

int main() {
    std::ios::sync_with_stdio(false);
    for (std::string line; std::getline(std::cin, line);) {
        std::cout << answer(line) << std::endl;
    }
}
