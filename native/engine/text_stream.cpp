// UTF-8 and stop-string handling behind text_stream.h.
#include "engine/text_stream.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace headrace {

namespace {

constexpr std::string_view REPLACEMENT = "\xEF\xBF\xBD";

struct Character {
    size_t length; // bytes to consume
    enum { whole, cut, invalid } state;
};

// Looks at the character that begins `text`, by the Unicode standard's table of well-formed sequences
// (3-7): overlong forms, surrogates and values past U+10FFFF are invalid.
Character look(std::string_view text) {
    const auto byte  = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
    const auto first = byte(0);
    size_t     length;
    uint8_t    low = 0x80, high = 0xBF; // range of the second byte
    if (first < 0x80) {
        return {1, Character::whole};
    } else if (first >= 0xC2 && first <= 0xDF) {
        length = 2;
    } else if (first >= 0xE0 && first <= 0xEF) {
        length = 3;
        low    = first == 0xE0 ? 0xA0 : low;
        high   = first == 0xED ? 0x9F : high;
    } else if (first >= 0xF0 && first <= 0xF4) {
        length = 4;
        low    = first == 0xF0 ? 0x90 : low;
        high   = first == 0xF4 ? 0x8F : high;
    } else {
        return {1, Character::invalid};
    }
    for (size_t i = 1; i < length; i++) {
        if (i == text.size()) {
            return {i, Character::cut};
        }
        if (byte(i) < low || byte(i) > high) {
            return {i, Character::invalid};
        }
        low  = 0x80;
        high = 0xBF;
    }
    return {length, Character::whole};
}

// Length of the longest end of `text` that begins `stop` without being all of it.
size_t overlap(std::string_view text, std::string_view stop) {
    for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; n--) {
        if (text.substr(text.size() - n) == stop.substr(0, n)) {
            return n;
        }
    }
    return 0;
}

} // namespace

TextStream::TextStream(std::vector<std::string> stop_strings) : stop_strings_(std::move(stop_strings)) {
    std::erase_if(stop_strings_, [](const std::string & stop) { return stop.empty(); });
}

bool TextStream::push(std::string_view piece) {
    if (ended_) {
        return true;
    }
    held_ += piece;
    size_t stop_at = std::string::npos;
    size_t keep    = 0;
    for (const auto & stop : stop_strings_) {
        stop_at = std::min(stop_at, held_.find(stop));
        keep    = std::max(keep, overlap(held_, stop));
    }
    if (stop_at != std::string::npos) {
        held_.resize(stop_at);
        finish();
        return true;
    }
    release(held_.size() - keep);
    return false;
}

void TextStream::finish() {
    ended_ = true;
    release(held_.size());
    held_.clear();
}

std::string TextStream::take() {
    return std::exchange(safe_, {});
}

void TextStream::release(size_t count) {
    const std::string_view text(held_.data(), count);
    size_t                 at = 0;
    while (at < text.size()) {
        const Character next = look(text.substr(at));
        if (next.state == Character::cut) {
            break;
        }
        safe_ += next.state == Character::whole ? text.substr(at, next.length) : REPLACEMENT;
        at += next.length;
    }
    held_.erase(0, at);
}

} // namespace headrace
