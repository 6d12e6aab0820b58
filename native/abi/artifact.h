// Facts of the program this engine is linked into; one source, compiled for each artifact.
#pragma once

#include "engine/engine.h"

namespace headrace {

// "st", "mt" or "native".
const char * artifact_name();

Host host_facts();

} // namespace headrace
