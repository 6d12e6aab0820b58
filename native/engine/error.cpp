// The table behind error.h.
#include "engine/error.h"

namespace headrace {

static constexpr ErrorDeclaration DECLARATIONS[] = {
#define X(code, help) {ErrorCode::code, #code, help},
    HR_ERROR_CODES(X)
#undef X
};

std::span<const ErrorDeclaration> error_declarations() {
    return DECLARATIONS;
}

const char * error_name(ErrorCode code) {
    return DECLARATIONS[static_cast<size_t>(code)].name;
}

} // namespace headrace
