// Counts what this program allocates, so that a test can show that a hot path allocates nothing.
#pragma once

#include <cstddef>

// Calls of operator new so far, on all threads.
size_t allocations();
