// Random commands for an engine: valid ones, with every option that hr_describe() declares, and broken ones.
//
// An operation or option that is added to the engine takes part without a change here, unless its values have
// a meaning that a random value misses: those have a list of their own in commands.cpp.
#pragma once

#include "soak/ledger.h"
#include "soak/random.h"

#include <nlohmann/json.hpp>

#include <string>

namespace headrace::soak {

struct Command {
    std::string text;          // JSON, or what is sent in its place
    bool        has_id = true; // whether an id can be read from it
    Expectation expectation;
};

class CommandMaker {
  public:
    // slots: of every engine that load() makes. folder: an empty one that engines may write caches into.
    CommandMaker(uint64_t seed, int64_t slots, std::string folder);

    // A load command for this model, whose options are drawn anew each time.
    std::string load(const std::string & model);

    // A request that must not be refused for what it says, though it may be for its options.
    Command valid(int64_t id);

    // A command that must fail, and how.
    Command broken(int64_t id);

    // A request that generates for at least `tokens` tokens.
    Command lasting(int64_t id, int64_t tokens);

    Random & random() { return random_; }

  private:
    nlohmann::json option_value(const nlohmann::json & declared);
    nlohmann::json random_options();
    nlohmann::json input_of(const std::string & operation, bool & fits);
    std::string    prompt();
    nlohmann::json messages();

    Random         random_;
    int64_t        slots_;
    std::string    folder_;
    nlohmann::json declarations_; // hr_describe()
};

} // namespace headrace::soak
