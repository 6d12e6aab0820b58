// An engine behind the C ABI, as a C++ program holds one: freed with its owner, JSON in and out.
//
// Counterpart: headrace/native.py, the same for Python. Checks nothing: see ledger.h.
#pragma once

#include "headrace.h"

#include <nlohmann/json.hpp>

#include <memory>
#include <string>

namespace headrace::soak {

class AbiEngine {
  public:
    AbiEngine() : engine_(hr_engine_create()) {}

    bool load(const std::string & command) {
        return hr_engine_load(engine_.get(), command.data(), command.size(), nullptr, nullptr) == 1;
    }

    void submit(const std::string & command) {
        hr_engine_submit(engine_.get(), command.data(), command.size());
    }

    void cancel(double id) { hr_engine_cancel(engine_.get(), id); }

    // Unfinished requests; -1 when the engine has failed.
    int32_t tick(double budget_ms) { return hr_engine_tick(engine_.get(), budget_ms); }

    // Throws nlohmann's parse_error where the engine's text is no JSON.
    nlohmann::json take_events() {
        size_t       length = 0;
        const char * text   = hr_engine_events(engine_.get(), &length);
        return nlohmann::json::parse(text, text + length);
    }

  private:
    struct Deleter {
        void operator()(hr_engine * engine) const { hr_engine_free(engine); }
    };
    std::unique_ptr<hr_engine, Deleter> engine_;
};

} // namespace headrace::soak
