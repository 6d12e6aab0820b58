// The ledger of the soak: it must tell each kind of broken promise, or the soak's silence is worth nothing.
#include "soak/ledger.h"

#include <doctest/doctest.h>

using headrace::soak::Expectation;
using headrace::soak::Ledger;
using nlohmann::json;

static json accepted(int64_t id) {
    return {{"type", "accepted"}, {"id", id}, {"options", json::object()}};
}

static json tokens(int64_t id, const std::string & text, int64_t token) {
    return {{"type", "tokens"}, {"id", id}, {"text", text}, {"tokenIds", json::array({token})}};
}

static json done(int64_t id, const std::string & text, std::vector<int64_t> ids, const std::string & reason) {
    return {{"type", "done"},
            {"id", id},
            {"result",
             {{"text", text},
              {"tokenIds", ids},
              {"finishReason", reason},
              {"usage", {{"outputTokens", ids.size()}}}}}};
}

static json failed(int64_t id, const std::string & code) {
    return {{"type", "failed"}, {"id", id}, {"error", {{"code", code}}}};
}

// Violations after these events of one request that ends.
static size_t told(const std::vector<json> & events, const Expectation & expectation = {}, size_t ticks = 1) {
    Ledger ledger;
    ledger.submitted(1, expectation);
    ledger.receive(json(events), ticks);
    ledger.close();
    return ledger.violations().size();
}

TEST_CASE("ledger: a request that keeps all promises is not told of") {
    CHECK(told({accepted(1), tokens(1, "ab", 5), done(1, "ab", {5}, "stop")}) == 0);
    CHECK(told({failed(1, "queue_full")}, {true, true, "", ""}) == 0);
    CHECK(told({failed(1, "invalid_option")}, {true, false, "invalid_option", ""}) == 0);
}

TEST_CASE("ledger: events in the wrong order, twice or missing are told") {
    CHECK(told({tokens(1, "a", 5), accepted(1), done(1, "a", {5}, "stop")}) == 1);
    CHECK(told({accepted(1), accepted(1), done(1, "", {}, "stop")}) == 1);
    CHECK(told({done(1, "", {}, "stop")}) == 1);
    CHECK(told({accepted(1), done(1, "", {}, "stop"), done(1, "", {}, "stop")}) == 1);
    CHECK(told({accepted(1), done(1, "", {}, "stop"), failed(1, "queue_full")}) == 1);
    CHECK(told({accepted(1)}) == 1);
    CHECK(told(std::vector<json>{}) == 1);
    CHECK(told({accepted(1), accepted(2), done(1, "", {}, "stop")}) == 1);
    CHECK(told({failed(0, "invalid_request"), failed(1, "invalid_request")}) == 1);
}

TEST_CASE("ledger: tokens that are not the result are told") {
    CHECK(told({accepted(1), tokens(1, "a", 5), done(1, "ab", {5}, "stop")}) == 1);
    CHECK(told({accepted(1), tokens(1, "a", 5), done(1, "a", {6}, "stop")}) == 1);
    CHECK(told({accepted(1), tokens(1, "a", 5), tokens(1, "b", 6), done(1, "ab", {5, 6}, "stop")}) == 1);
    CHECK(told({accepted(1), tokens(1, "a", 5), tokens(1, "b", 6), done(1, "ab", {5, 6}, "stop")}, {}, 2) ==
          0);
}

TEST_CASE("ledger: an end that nobody asked for is told") {
    CHECK(told({accepted(1), done(1, "", {}, "cancelled")}) == 1);
    CHECK(told({failed(1, "invalid_option")}, {true, true, "", ""}) == 1);
    CHECK(told({failed(1, "internal")}) == 1);
    CHECK(told({failed(1, "invalid_request")}, {true, false, "invalid_option", ""}) == 1);
    CHECK(told({accepted(1), done(1, "", {}, "stop")}, {true, false, "invalid_option", ""}) == 2);
    CHECK(told({accepted(1), tokens(1, "x", 5), done(1, "x", {5}, "stop")}, {true, true, "", "y"}) == 1);
    CHECK(told({accepted(1), tokens(1, "x", 5), done(1, "x", {5}, "length")}, {true, true, "", "xy"}) == 0);
}

TEST_CASE("ledger: it knows who is open and who moved") {
    Ledger ledger;
    ledger.submitted(1, {});
    ledger.submitted(2, {});
    ledger.receive(json::array({accepted(1), accepted(2), tokens(2, "a", 5)}), 1);
    CHECK(ledger.open() == std::vector<int64_t>{1, 2});
    CHECK_FALSE(ledger.moved(1));
    CHECK(ledger.moved(2));
    ledger.cancelled(1);
    ledger.receive(json::array({done(1, "", {}, "cancelled")}), 1);
    CHECK(ledger.open() == std::vector<int64_t>{2});
    CHECK_FALSE(ledger.moved(2));
    CHECK(ledger.violations().empty());
}
