// The checks behind grammar_check.h: of the text before it is parsed, and of the rules before they are used.
#include "engine/grammar_check.h"

#include "engine/error.h"

#include <llama-grammar.h>

#include <algorithm>
#include <charconv>
#include <string_view>

namespace headrace {

namespace {

[[noreturn]] void refuse(const std::string & why) {
    throw Error(ErrorCode::grammar_invalid, "the grammar is not valid: " + why);
}

[[noreturn]] void refuse_at(std::string_view text, size_t at, const std::string & why) {
    const std::string_view before = text.substr(0, at);
    const size_t           line   = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
    const size_t           begin  = before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1;
    refuse("line " + std::to_string(line) + ", byte " + std::to_string(at - begin + 1) + ": " + why);
}

// Reads a grammar only as far as to know what is nested and repeated.
class TextCheck {
  public:
    explicit TextCheck(std::string_view text) : text_(text) {}

    void run() {
        while (at_ < text_.size()) {
            step();
        }
    }

  private:
    void step() {
        const size_t begin = at_;
        switch (text_[at_]) {
            case '"': return item(quoted('"') - begin);
            case '[': return item(quoted(']') - begin);
            case '<': return item(skip_to('>') - begin);
            case '#': skip_to('\n'); return;
            case ' ':
            case '\t':
            case '\r':
            case '\n': at_++; return;
            case '(':
                if (++depth_ > MAX_GRAMMAR_NESTING) {
                    refuse_at(text_, at_,
                              "more than " + std::to_string(MAX_GRAMMAR_NESTING) +
                                  " brackets inside each other");
                }
                at_++;
                return;
            case ')':
                depth_ -= depth_ > 0 ? 1 : 0;
                at_++;
                return item(1);
            case '*':
            case '+':
            case '?': at_++; return add(2 * item_);
            case '{': return repetition();
            default: at_++; return item(1);
        }
    }

    void item(size_t length) {
        item_ = length;
        add(length);
    }

    void add(size_t elements) {
        elements_ += elements;
        if (elements_ > MAX_GRAMMAR_ELEMENTS) {
            refuse_at(text_, at_, "too long with its repetitions written out");
        }
    }

    // Past the closing character of a text or a set, which a backslash hides.
    size_t quoted(char close) {
        for (at_++; at_ < text_.size() && text_[at_] != close; at_++) {
            at_ += text_[at_] == '\\' ? 1 : 0;
        }
        at_ = std::min(at_ + 1, text_.size());
        return at_;
    }

    size_t skip_to(char end) {
        at_ = std::min(text_.find(end, at_), text_.size() - 1) + 1;
        return at_;
    }

    size_t number() {
        size_t     value  = 0;
        const auto result = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
        if (result.ec == std::errc::result_out_of_range || value > MAX_GRAMMAR_REPETITIONS) {
            refuse_at(text_, at_, "more than " + std::to_string(MAX_GRAMMAR_REPETITIONS) + " repetitions");
        }
        at_ = static_cast<size_t>(result.ptr - text_.data());
        return value;
    }

    void space() {
        while (at_ < text_.size() &&
               std::string_view(" \t\r\n#").find(text_[at_]) != std::string_view::npos) {
            if (text_[at_] == '#') {
                skip_to('\n');
            } else {
                at_++;
            }
        }
    }

    bool digit() const { return at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; }

    // {m} {m,} {m,n}; whatever else is between the brackets is left to the parser's complaint.
    void repetition() {
        const size_t begin = at_++;
        space();
        size_t least = 0;
        if (digit()) {
            least = number();
        }
        space();
        size_t most = least;
        if (at_ < text_.size() && text_[at_] == ',') {
            at_++;
            space();
            if (digit()) {
                most = number();
                if (most < least) {
                    refuse_at(text_, begin, "a repetition whose end is before its beginning");
                }
            }
        }
        // A repetition that may be left out is a rule of its own each time.
        constexpr size_t rule = 8;
        add((item_ + rule) * (most + 1));
    }

    std::string_view text_;
    size_t           at_       = 0;
    size_t           depth_    = 0;
    size_t           item_     = 0; // elements of what a repetition would repeat
    size_t           elements_ = 0;
};

// Past white space and comments.
const char * skip_space(const char * at) {
    while (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n' || *at == '#') {
        if (*at == '#') {
            while (*at && *at != '\r' && *at != '\n') {
                at++;
            }
        } else {
            at++;
        }
    }
    return at;
}

// The parser's complaints end with all that is left of the text: " at …".
[[noreturn]] void refuse_as_parser(const std::string & text, const std::string & complaint) {
    const size_t mark = complaint.find(" at ");
    if (mark != complaint.npos) {
        const std::string_view rest = std::string_view(complaint).substr(mark + 4);
        if (std::string_view(text).ends_with(rest)) {
            refuse_at(text, text.size() - rest.size(), complaint.substr(0, mark));
        }
    }
    refuse(complaint.substr(0, 200));
}

void parse(llama_grammar_parser & parser, const std::string & text) {
    try {
        // Its own loop over parse_rule() prints to stderr and keeps the reason to itself.
        for (const char * at = skip_space(text.c_str()); *at;) {
            at = parser.parse_rule(at);
        }
    } catch (const std::exception & error) {
        refuse_as_parser(text, error.what());
    }
    if (parser.symbol_ids.count("root") == 0) {
        refuse("there is no rule named root");
    }
    // The parser numbers the rules it makes of brackets, and does not see that a name like root_2 is taken.
    std::vector<bool> taken(parser.symbol_ids.size());
    for (const auto & [name, id] : parser.symbol_ids) {
        if (id >= taken.size() || taken[id]) {
            refuse("a rule is named like those that the parser makes up: name_number");
        }
        taken[id] = true;
    }
    parser.rules.resize(std::max(parser.rules.size(), parser.symbol_ids.size()));
    for (const auto & [name, id] : parser.symbol_ids) {
        if (parser.rules[id].empty()) {
            refuse("the rule " + name.substr(0, 60) + " is not defined");
        }
    }
}

bool is_end(const llama_grammar_element & element) {
    return element.type == LLAMA_GRETYPE_END || element.type == LLAMA_GRETYPE_ALT;
}

// A rule that another one can begin with.
struct Edge {
    uint32_t to;
    bool     followed; // by something, in the rule it stands in
};

class RuleCheck {
  public:
    explicit RuleCheck(const llama_grammar_parser & parser)
        : parser_(parser), rules_(parser.rules), may_be_empty_(rules_.size()) {
        find_empty();
    }

    void run() {
        check_parser_recursion();
        check_left_recursion();
    }

  private:
    template <class Visit> void each_alternative(uint32_t rule, Visit visit) const {
        for (const llama_grammar_element * at = rules_[rule].data();; at++) {
            visit(at);
            while (!is_end(*at)) {
                at++;
            }
            if (at->type == LLAMA_GRETYPE_END) {
                return;
            }
        }
    }

    void find_empty() {
        size_t passes = 0;
        for (bool changed = true; changed; passes++) {
            if (passes > MAX_GRAMMAR_DEPTH) {
                refuse("too many rules begin with each other");
            }
            changed = false;
            for (uint32_t rule = static_cast<uint32_t>(rules_.size()); rule-- > 0;) {
                each_alternative(rule, [&](const llama_grammar_element * at) {
                    while (at->type == LLAMA_GRETYPE_RULE_REF && may_be_empty_[at->value]) {
                        at++;
                    }
                    if (is_end(*at) && !may_be_empty_[rule]) {
                        may_be_empty_[rule] = changed = true;
                    }
                });
            }
        }
    }

    std::vector<Edge> beginnings(uint32_t rule, const std::vector<bool> & passable) const {
        std::vector<Edge> edges;
        each_alternative(rule, [&](const llama_grammar_element * at) {
            for (; at->type == LLAMA_GRETYPE_RULE_REF; at++) {
                edges.push_back({at->value, !is_end(at[1])});
                if (!passable[at->value]) {
                    break;
                }
            }
        });
        return edges;
    }

    std::string name(uint32_t rule) const {
        for (const auto & [text, id] : parser_.symbol_ids) {
            if (id == rule) {
                return text.substr(0, 60);
            }
        }
        return "?";
    }

    [[noreturn]] void refuse_recursion(uint32_t rule) const {
        refuse("the rule " + name(rule) + " begins with itself (left recursion)");
    }

    // llama.cpp looks for left recursion by a recursive walk that visits a rule again for each way to it, and
    // takes only a rule with an empty alternative for one that may be empty. This walk remembers the cost.
    void check_parser_recursion() const {
        std::vector<bool> empty_alternative(rules_.size());
        for (uint32_t rule = 0; rule < rules_.size(); rule++) {
            each_alternative(rule, [&](const llama_grammar_element * at) {
                empty_alternative[rule] = empty_alternative[rule] || is_end(*at);
            });
        }
        struct Visit {
            uint32_t          rule;
            std::vector<Edge> edges;
            size_t            next = 0;
        };
        enum : uint8_t { fresh, open, closed };
        constexpr size_t     most = 1000000; // visits: a fraction of a second
        std::vector<uint8_t> state(rules_.size(), fresh);
        std::vector<size_t>  cost(rules_.size(), 1), depth(rules_.size(), 1);
        size_t               all = 0;
        for (uint32_t root = 0; root < rules_.size(); root++) {
            if (state[root] != fresh) {
                continue;
            }
            std::vector<Visit> path;
            path.push_back({root, beginnings(root, empty_alternative)});
            state[root] = open;
            while (!path.empty()) {
                Visit & visit = path.back();
                if (visit.next < visit.edges.size()) {
                    const uint32_t to = visit.edges[visit.next].to;
                    if (state[to] == open) {
                        refuse_recursion(to);
                    }
                    if (state[to] == fresh) {
                        state[to] = open;
                        path.push_back({to, beginnings(to, empty_alternative)});
                        continue;
                    }
                    visit.next++;
                    cost[visit.rule]  = std::min(most + 1, cost[visit.rule] + cost[to]);
                    depth[visit.rule] = std::max(depth[visit.rule], depth[to] + 1);
                } else {
                    state[visit.rule] = closed;
                    all += cost[visit.rule];
                    if (all > most || depth[visit.rule] > MAX_GRAMMAR_DEPTH) {
                        refuse("the rule " + name(visit.rule) +
                               " is too complex: too many rules begin with others");
                    }
                    path.pop_back();
                }
            }
        }
    }

    // Tarjan's strongly connected components, without recursion: each is complete before any that begins with
    // it. Inside one, a reference that something follows makes llama.cpp's stack grow for ever.
    void check_left_recursion() const {
        struct Visit {
            uint32_t          rule;
            std::vector<Edge> edges;
            size_t            next = 0;
        };
        constexpr uint32_t    unseen = UINT32_MAX;
        std::vector<uint32_t> order(rules_.size(), unseen), low(rules_.size()),
            component(rules_.size(), unseen);
        std::vector<size_t>   branches(rules_.size(), 0);
        std::vector<uint32_t> waiting;
        uint32_t              count = 0;
        const auto            enter = [&](std::vector<Visit> & path, uint32_t rule) {
            order[rule] = low[rule] = count++;
            waiting.push_back(rule);
            path.push_back({rule, beginnings(rule, may_be_empty_)});
        };
        for (uint32_t root = 0; root < rules_.size(); root++) {
            std::vector<Visit> path;
            if (order[root] == unseen) {
                enter(path, root);
            }
            while (!path.empty()) {
                Visit &        visit = path.back();
                const uint32_t rule  = visit.rule;
                if (visit.next < visit.edges.size()) {
                    const uint32_t to = visit.edges[visit.next].to;
                    if (order[to] == unseen) {
                        enter(path, to);
                        continue;
                    }
                    if (component[to] == unseen) {
                        low[rule] = std::min(low[rule], low[to]);
                    }
                    visit.next++;
                    continue;
                }
                path.pop_back();
                if (low[rule] == order[rule]) {
                    close_component(rule, waiting, component, branches);
                }
            }
        }
    }

    void close_component(uint32_t first, std::vector<uint32_t> & waiting, std::vector<uint32_t> & component,
                         std::vector<size_t> & branches) const {
        std::vector<uint32_t> members;
        do {
            members.push_back(waiting.back());
            component[waiting.back()] = first;
            waiting.pop_back();
        } while (members.back() != first);
        size_t sum = 0;
        for (const uint32_t rule : members) {
            each_alternative(rule, [&](const llama_grammar_element *) { sum++; });
            for (const Edge & edge : beginnings(rule, may_be_empty_)) {
                if (component[edge.to] != first) {
                    sum += branches[edge.to];
                } else if (edge.followed) {
                    refuse_recursion(rule);
                }
            }
        }
        if (sum > MAX_GRAMMAR_BRANCHES) {
            refuse("the rule " + name(first) + " is too complex: it can begin in more than " +
                   std::to_string(MAX_GRAMMAR_BRANCHES) + " ways");
        }
        for (const uint32_t rule : members) {
            branches[rule] = sum;
        }
    }

    const llama_grammar_parser & parser_;
    const llama_grammar_rules &  rules_;
    std::vector<bool>            may_be_empty_;
};

} // namespace

void check_grammar(const std::string & text, const llama_vocab * vocabulary) {
    if (text.size() > MAX_GRAMMAR_BYTES) {
        refuse("longer than " + std::to_string(MAX_GRAMMAR_BYTES) + " bytes");
    }
    if (text.find('\0') != text.npos) {
        refuse("it has a zero byte");
    }
    TextCheck(text).run();
    llama_grammar_parser parser(vocabulary);
    parse(parser, text);
    RuleCheck(parser).run();
}

} // namespace headrace
