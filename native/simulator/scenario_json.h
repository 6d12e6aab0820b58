// Scenarios and outcomes as JSON text: the simulator's edge.
//
// Members are named as in scenario.h, in camelCase; those left out keep their defaults, unknown ones are
// refused by name.
#pragma once

#include "simulator/scenario.h"

#include <string>
#include <string_view>

namespace headrace {

// Throws Error (invalid_request) for what is no scenario.
Scenario read_scenario(std::string_view text);

// {"requests": […], "plans": […], "metrics": {…}}. A contribution of a plan is
// [slot, request, kind, position, wantsLogits]; a member that does not apply is null.
std::string write_outcome(const Outcome & outcome);

} // namespace headrace
