// Token pieces in, text that may be shown out.
//
// Holds back what must not be shown yet: the first bytes of a character whose rest is still to come, and
// text that may turn out to be the beginning of a stop string. Not aware of tokens or requests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headrace {

class TextStream {
  public:
    explicit TextStream(std::vector<std::string> stop_strings);

    // Adds a piece. Returns true when a stop string is complete: text after it is dropped, and the stream ends.
    bool push(std::string_view piece);

    // Releases what was held back for a stop string that never came. An unfinished character is dropped.
    void finish();

    // The text that has become safe to show since the last call: whole UTF-8 characters. Bytes that can
    // never be part of one become U+FFFD.
    std::string take();

  private:
    void release(size_t count);

    std::vector<std::string> stop_strings_;
    std::string              held_; // raw bytes not yet released
    std::string              safe_; // valid UTF-8 not yet taken
    bool                     ended_ = false;
};

} // namespace headrace
