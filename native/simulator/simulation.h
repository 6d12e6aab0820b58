// The real scheduler, with its planner, pace, KV cache manager and prefix store, under a load that is made up
// and over a model that computes nothing.
//
// Counterpart of engine/engine.h: it does what an engine and its host do, on a clock that jumps. Thousands of
// requests take about a second. Not a test: it judges nothing but what no model could compute.
#pragma once

#include "simulator/scenario.h"

namespace headrace {

// Throws Error: internal when the scheduler asks for the impossible or stands still, invalid_request for a
// scenario that makes no sense.
Outcome simulate(const Scenario & scenario);

} // namespace headrace
