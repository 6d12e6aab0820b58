// One engine after another under random operations, on one thread.
//
// Counterpart: soak.cpp, which runs several of these side by side. The promises checked are in ledger.h.
#pragma once

#include "soak/abi_engine.h"
#include "soak/commands.h"

#include <atomic>
#include <functional>
#include <string>
#include <vector>

namespace headrace::soak {

struct SoakPlan {
    std::string           model;
    std::string           folder; // may be written to
    uint64_t              seed       = 1;
    size_t                operations = 1000; // of this thread
    size_t                lives      = 3;    // engines made one after another
    std::function<bool()> out_of_time;
};

struct SoakReport {
    size_t                   operations  = 0;
    size_t                   submitted   = 0;
    size_t                   cancels     = 0;
    size_t                   ticks       = 0;
    size_t                   slot_checks = 0;
    size_t                   left_over   = 0; // unfinished requests of engines that were freed
    Counts                   counts;
    std::vector<std::string> violations;
};

// Counts every operation in `progress` as it happens.
SoakReport run_soak(const SoakPlan & plan, std::atomic<size_t> & progress);

} // namespace headrace::soak
