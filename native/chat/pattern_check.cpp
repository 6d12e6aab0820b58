// The scanner behind pattern_check.h.
#include "chat/pattern_check.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace headrace {

namespace {

constexpr size_t MAX_LENGTH     = 1000;
constexpr int    MAX_DEPTH      = 16;
constexpr int    MAX_REPETITION = 1000; // llama.cpp refuses grammars that repeat more than 2000 times

// What stands in a JSON string only escaped, so that a pattern about the text says nothing about the JSON.
bool escaped_in_json(uint32_t character) {
    return character < 0x20 || character == '"' || character == '\\' || character == 0x7F;
}

class Scanner {
  public:
    explicit Scanner(std::string_view pattern) : text_(pattern) {}

    std::string run() {
        if (text_.size() > MAX_LENGTH) {
            return "is longer than " + std::to_string(MAX_LENGTH) + " bytes";
        }
        if (text_.size() < 2 || text_.front() != '^' || text_.back() != '$') {
            return "must begin with ^ and end with $";
        }
        text_ = text_.substr(1, text_.size() - 2);
        while (trouble_.empty() && at_ < text_.size()) {
            step();
        }
        if (trouble_.empty() && depth_ > 0) {
            trouble_ = "has an unclosed group";
        }
        return trouble_;
    }

  private:
    bool next_is_quantifier() const {
        return at_ < text_.size() && std::string_view("*+?{").find(text_[at_]) != std::string_view::npos;
    }

    void step() {
        const char c = text_[at_];
        switch (c) {
            case '(': open_group(); return;
            case ')':
                at_++;
                depth_--;
                repeatable_ = true;
                if (depth_ < 0) {
                    trouble_ = "closes a group that it did not open";
                }
                return;
            case '[': character_class(); return;
            case '|':
                at_++;
                repeatable_ = false;
                return;
            case '*':
            case '+':
            case '?':
            case '{': quantifier(); return;
            case '^':
            case '$': trouble_ = "has an anchor in its middle"; return;
            case ']':
            case '}': trouble_ = std::string("has a stray ") + c; return;
            default: literal();
        }
    }

    void open_group() {
        at_++;
        repeatable_ = false;
        if (at_ < text_.size() && text_[at_] == '?') {
            if (text_.substr(at_, 2) != "?:") {
                trouble_ = "has a group that is more than a group, such as a lookahead";
                return;
            }
            at_ += 2;
        }
        if (++depth_ > MAX_DEPTH) {
            trouble_ = "nests groups deeper than " + std::to_string(MAX_DEPTH);
        }
    }

    void quantifier() {
        if (!repeatable_) {
            trouble_ = "repeats nothing";
            return;
        }
        repeatable_ = false; // a second quantifier after this one is another dialect
        if (text_[at_++] != '{') {
            return;
        }
        const size_t end = text_.find('}', at_);
        if (end == std::string_view::npos) {
            trouble_ = "has an unclosed {";
            return;
        }
        const std::string_view counts = text_.substr(at_, end - at_);
        const size_t           comma  = counts.find(',');
        const int              low    = count(counts.substr(0, comma));
        const bool             open   = comma != std::string_view::npos && comma + 1 == counts.size();
        const int              high   = comma == std::string_view::npos ? low
                                        : open                          ? std::max(low, 1)
                                                                        : count(counts.substr(comma + 1));
        at_                           = end + 1;
        if (low < 0 || high < low || high == 0) {
            trouble_ = "repeats {" + std::string(counts.substr(0, 20)) + "} times, which is not to be used";
        }
    }

    // -1: not a number, or too large a one.
    static int count(std::string_view digits) {
        const bool number = !digits.empty() && digits.size() <= 4 &&
                            digits.find_first_not_of("0123456789") == std::string_view::npos;
        const int  value  = number ? std::atoi(std::string(digits).c_str()) : -1;
        return value <= MAX_REPETITION ? value : -1;
    }

    // Moves past an escape and gives its character; sets the trouble when it is not one for a grammar.
    uint32_t escape(std::string_view allowed) {
        at_++;
        const char   kind   = at_ < text_.size() ? text_[at_++] : '\0';
        const size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : 0;
        if (digits > 0) {
            const std::string hex(text_.substr(at_, digits));
            if (hex.size() == digits &&
                hex.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos) {
                at_ += digits;
                return static_cast<uint32_t>(std::strtoul(hex.c_str(), nullptr, 16));
            }
        } else if (kind != '\0' && allowed.find(kind) != std::string_view::npos) {
            return static_cast<uint8_t>(kind);
        }
        trouble_ = kind == '\0'
                       ? "ends in a backslash"
                       : std::string("has the escape \\") + kind + ", for which a grammar has no word";
        return 0;
    }

    void literal() {
        const char     c       = text_[at_];
        const bool     escaped = c == '\\';
        const uint32_t value   = escaped ? escape("^$.[](){}|*+?-") : static_cast<uint8_t>(text_[at_++]);
        if (!trouble_.empty()) {
            return;
        }
        if (escaped_in_json(value)) {
            trouble_ = "names a character that JSON escapes (a quote, a backslash or a control character)";
        } else if ((escaped || value >= 0x80) && next_is_quantifier()) {
            trouble_ = "repeats an escaped or non-ASCII character; put it into brackets";
        }
        repeatable_ = true;
    }

    void character_class() {
        at_++;
        if (at_ < text_.size() && text_[at_] == '^') {
            trouble_ = "has a negated class, which also allows what JSON escapes; list what is allowed";
            return;
        }
        const size_t begin = at_;
        while (trouble_.empty() && at_ < text_.size() && text_[at_] != ']') {
            const uint32_t low  = class_member();
            uint32_t       high = low;
            if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
                at_++;
                high = class_member();
            }
            if (trouble_.empty() && high < low) {
                trouble_ = "has a class with a range that runs backwards";
            }
            for (uint32_t each = low; trouble_.empty() && each <= high && each < 0x80; each++) {
                if (escaped_in_json(each)) {
                    trouble_ =
                        "has a class with a character that JSON escapes (a quote, a backslash or a control "
                        "character)";
                }
            }
        }
        if (!trouble_.empty()) {
            return;
        }
        if (at_ >= text_.size() || at_ == begin) {
            trouble_ = "has a class that is empty or not closed";
            return;
        }
        at_++;
        repeatable_ = true;
    }

    uint32_t class_member() {
        if (text_[at_] == '\\') {
            return escape("[]-");
        }
        const uint8_t first  = static_cast<uint8_t>(text_[at_]);
        const size_t  length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
        uint32_t      value  = length == 1 ? first : first & (0x7F >> length);
        at_++;
        for (size_t i = 1; i < length && at_ < text_.size(); i++) {
            value = value << 6 | (static_cast<uint8_t>(text_[at_++]) & 0x3F);
        }
        return value;
    }

    std::string_view text_;
    size_t           at_         = 0;
    int              depth_      = 0;
    bool             repeatable_ = false;
    std::string      trouble_;
};

} // namespace

std::string pattern_trouble(const std::string & pattern) {
    return Scanner(pattern).run();
}

} // namespace headrace
