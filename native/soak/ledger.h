// What was asked of an engine, set against what it said: every broken promise of the C ABI becomes a line.
//
// Fed by soak.cpp with each command before it is sent, and with all events. Knows nothing of how commands
// are made: see commands.h.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace headrace::soak {

// How a request may end.
struct Expectation {
    bool        generates = true;  // query or chat: accepted first, its tokens' texts are the result's text
    bool        plain     = false; // nothing in it may be refused, but for a full queue
    std::string refusal;           // the error code it must fail with; empty if it need not fail
    std::string answer;            // the text of a result that ends by itself; empty if it is not known
    // What was told of the answer before, by another engine: its tokens and their text.
    std::vector<int64_t> told_ids  = {};
    std::string          told_text = {};
};

struct Counts {
    size_t                        accepted = 0;
    size_t                        done     = 0;
    size_t                        tokens   = 0;
    std::map<std::string, size_t> finish_reasons;
    std::map<std::string, size_t> errors; // by code
};

class Ledger {
  public:
    void submitted(int64_t id, Expectation expectation);

    // A command without an id that could be read: it is answered with `failed` and the id 0.
    void submitted_without_id() { unnumbered_++; }

    void cancelled(int64_t id);

    // All events since the last call, and the ticks made in between.
    void receive(const nlohmann::json & events, size_t ticks);

    // Requests that were accepted and have not ended.
    std::vector<int64_t> open() const;

    // Whether a tokens event of this request was among the events last received.
    bool moved(int64_t id) const { return moved_.contains(id); }

    // To be called when all requests have ended.
    void close();

    void violation(const std::string & what) { violations_.push_back(what); }

    const std::vector<std::string> & violations() const { return violations_; }
    const Counts &                   counts() const { return counts_; }

  private:
    struct Entry {
        Expectation          expectation;
        bool                 accepted  = false;
        bool                 ended     = false;
        bool                 cancelled = false;
        std::string          text;
        std::string          reasoning;
        std::vector<int64_t> token_ids;
    };

    void accept(int64_t id, Entry & entry, const nlohmann::json & event);
    void add_tokens(int64_t id, Entry & entry, const nlohmann::json & event);
    void finish(int64_t id, Entry & entry, const nlohmann::json & event);
    void fail(int64_t id, Entry & entry, const nlohmann::json & event);
    void wrong(int64_t id, const std::string & what);

    std::map<int64_t, Entry>  entries_;
    std::map<int64_t, size_t> moved_; // tokens events of each request among those last received
    size_t                    unnumbered_ = 0;
    Counts                    counts_;
    std::vector<std::string>  violations_;
};

} // namespace headrace::soak
