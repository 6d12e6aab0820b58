// The asking behind token_text.h.
#include "engine/token_text.h"

#include <llama.h>

#include <algorithm>

namespace headrace {

std::string token_text(const llama_vocab * vocabulary, Token token, bool special) {
    std::string text(32, '\0');
    const auto  render = [&] {
        return llama_token_to_piece(vocabulary, token, text.data(), static_cast<int32_t>(text.size()), 0,
                                    special);
    };
    int32_t length = render();
    if (length < 0) {
        text.resize(static_cast<size_t>(-length));
        length = render();
    }
    text.resize(static_cast<size_t>(std::max(length, 0)));
    return text;
}

} // namespace headrace
