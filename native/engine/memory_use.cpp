// See memory_use.h. llama.cpp has no public function for it.
#include "engine/memory_use.h"

#include <llama-ext.h>

namespace headrace {

MemoryUse memory_use(const llama_context * context) {
    MemoryUse use;
    for (const auto & [type, data] : llama_get_memory_breakdown(context)) {
        use += {data.model, data.context, data.compute};
    }
    return use;
}

} // namespace headrace
