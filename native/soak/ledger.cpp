// The bookkeeping behind ledger.h.
#include "soak/ledger.h"

namespace headrace::soak {

using nlohmann::json;

void Ledger::submitted(int64_t id, Expectation expectation) {
    Entry & entry     = entries_[id];
    entry.text        = expectation.told_text;
    entry.token_ids   = expectation.told_ids;
    entry.expectation = std::move(expectation);
}

void Ledger::cancelled(int64_t id) {
    if (const auto found = entries_.find(id); found != entries_.end()) {
        found->second.cancelled = true;
    }
}

void Ledger::wrong(int64_t id, const std::string & what) {
    violation("request " + std::to_string(id) + " " + what);
}

void Ledger::receive(const json & events, size_t ticks) {
    moved_.clear();
    for (const json & event : events) {
        const std::string type = event.at("type");
        if (type == "ready") {
            continue;
        }
        if (type == "engine_failed") {
            violation("the engine failed: " + event.dump());
            continue;
        }
        const int64_t id = event.at("id");
        if (id == 0) {
            if (type != "failed" || unnumbered_ == 0) {
                violation("an event for no command: " + event.dump());
            } else {
                unnumbered_--;
                counts_.errors[event.at("error").at("code")]++;
            }
            continue;
        }
        const auto found = entries_.find(id);
        if (found == entries_.end()) {
            wrong(id, "was never submitted, but has an event " + type);
            continue;
        }
        Entry & entry = found->second;
        if (entry.ended) {
            wrong(id, "has ended, and then an event " + type);
        } else if (type == "accepted") {
            accept(id, entry, event);
        } else if (type == "tokens") {
            add_tokens(id, entry, event);
            if (moved_[id] > ticks) {
                wrong(id, "has more than one tokens event in a tick");
            }
        } else if (type == "done") {
            finish(id, entry, event);
        } else if (type == "failed") {
            fail(id, entry, event);
        } else {
            wrong(id, "has an event of an unknown type: " + type);
        }
    }
}

void Ledger::accept(int64_t id, Entry & entry, const json & event) {
    counts_.accepted++;
    if (entry.accepted) {
        wrong(id, "was accepted twice");
    }
    if (!entry.expectation.refusal.empty()) {
        wrong(id, "was accepted, and should fail with " + entry.expectation.refusal);
    }
    if (!event.at("options").is_object()) {
        wrong(id, "was accepted without its options");
    }
    entry.accepted = true;
}

void Ledger::add_tokens(int64_t id, Entry & entry, const json & event) {
    moved_[id]++;
    if (!entry.accepted) {
        wrong(id, "has tokens before it was accepted");
    }
    entry.text += event.at("text").get<std::string>();
    entry.reasoning += event.value("reasoning", "");
    for (const json & token : event.at("tokenIds")) {
        entry.token_ids.push_back(token);
        counts_.tokens++;
    }
}

void Ledger::finish(int64_t id, Entry & entry, const json & event) {
    counts_.done++;
    entry.ended              = true;
    const Expectation & want = entry.expectation;
    if (!want.refusal.empty()) {
        wrong(id, "is done, and should fail with " + want.refusal);
    }
    if (!want.generates) {
        return;
    }
    const json &      result = event.at("result");
    const std::string text   = result.at("text");
    const std::string reason = result.at("finishReason");
    counts_.finish_reasons[reason]++;
    if (!entry.accepted) {
        wrong(id, "is done, and was not accepted");
    }
    if (text != entry.text) {
        wrong(id, "has the tokens \"" + entry.text + "\" and the result \"" + text + "\"");
    }
    if (result.value("reasoning", "") != entry.reasoning) {
        wrong(id, "has other reasoning in its tokens than in its result");
    }
    if (result.at("tokenIds").get<std::vector<int64_t>>() != entry.token_ids) {
        wrong(id, "has other tokenIds in its tokens than in its result");
    }
    if (result.at("usage").at("outputTokens") != entry.token_ids.size()) {
        wrong(id, "reports another number of output tokens than it has");
    }
    if (reason == "cancelled" && !entry.cancelled) {
        wrong(id, "ended as cancelled, and nobody did");
    }
    if (!want.answer.empty() && reason == "stop" && text != want.answer) {
        wrong(id, "answered \"" + text + "\" instead of \"" + want.answer + "\"");
    }
}

void Ledger::fail(int64_t id, Entry & entry, const json & event) {
    const std::string code = event.at("error").at("code");
    counts_.errors[code]++;
    entry.ended = true;
    // Never the request's fault.
    const bool   ours = code == "internal" || code == "engine_aborted" || code == "engine_closed" ||
                        code == "out_of_memory" || code == "numeric_fault";
    const auto & want = entry.expectation;
    const bool   full = code == "queue_full"; // may come before any other refusal
    if (ours || (!want.refusal.empty() && code != want.refusal && !full) || (want.plain && !full)) {
        wrong(id, "failed with " + event.at("error").dump() +
                      (want.refusal.empty() ? "" : ", not with " + want.refusal));
    }
}

std::vector<int64_t> Ledger::open() const {
    std::vector<int64_t> ids;
    for (const auto & [id, entry] : entries_) {
        if (entry.accepted && !entry.ended) {
            ids.push_back(id);
        }
    }
    return ids;
}

void Ledger::close() {
    for (const auto & [id, entry] : entries_) {
        if (!entry.ended) {
            wrong(id, entry.accepted ? "was accepted and never ended" : "was never answered");
        }
    }
    if (unnumbered_ > 0) {
        violation(std::to_string(unnumbered_) + " commands without an id were not answered");
    }
}

} // namespace headrace::soak
