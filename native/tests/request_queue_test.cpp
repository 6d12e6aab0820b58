// Who goes next: priority, age, context keys in use, cancels.
#include "engine/request_queue.h"

#include <doctest/doctest.h>

using namespace headrace;

namespace {

Request waiting(RequestId id, int64_t priority = 0, std::string key = "") {
    Request request;
    request.id                  = id;
    request.options.priority    = priority;
    request.options.context_key = std::move(key);
    return request;
}

std::vector<RequestId> drain(RequestQueue & queue) {
    std::vector<RequestId> order;
    while (const auto next = queue.take([](const Request &) { return true; })) {
        order.push_back(next->id);
    }
    return order;
}

} // namespace

TEST_CASE("request_queue: the higher priority first, then the older") {
    RequestQueue queue;
    queue.push(waiting(1));
    queue.push(waiting(2, -3));
    queue.push(waiting(3, 7));
    queue.push(waiting(4));
    queue.push(waiting(5, 7));
    CHECK(drain(queue) == std::vector<RequestId>{3, 5, 1, 4, 2});
}

TEST_CASE("request_queue: seven may overtake the oldest in a row, not more") {
    RequestQueue queue;
    const auto   push = [&](RequestId id, int64_t priority) {
        auto request            = waiting(id, priority);
        request.times.submitted = static_cast<double>(id);
        queue.push(std::move(request));
    };
    push(1, -5);
    push(2, -5);
    for (RequestId id = 10; id < 30; id++) {
        push(id, 5);
    }
    const auto order = drain(queue);
    CHECK(order[7] == 1);
    CHECK(order[15] == 2);
    CHECK(order[0] == 10);
    CHECK(order.back() == 29);
}

TEST_CASE("request_queue: one whose key is in use holds up only its twins") {
    RequestQueue queue;
    queue.push(waiting(1, 0, "a"));
    queue.push(waiting(2, 0, "a"));
    queue.push(waiting(3, 0, "b"));
    const auto next = queue.take([](const Request & request) { return request.options.context_key != "a"; });
    REQUIRE(next);
    CHECK(next->id == 3);
    CHECK(!queue.take([](const Request & request) { return request.options.context_key != "a"; }));
    CHECK(drain(queue) == std::vector<RequestId>{1, 2});
}

TEST_CASE("request_queue: what was cancelled is taken out, the rest keeps its order") {
    RequestQueue queue;
    for (RequestId id = 1; id <= 5; id++) {
        queue.push(waiting(id));
    }
    CHECK(queue.cancel(2));
    CHECK(queue.cancel(4));
    CHECK(!queue.cancel(99));
    const auto gone = queue.take_all([](const Request & request) { return request.cancelled; });
    REQUIRE(gone.size() == 2);
    CHECK(gone[0].id == 2);
    CHECK(gone[1].id == 4);
    CHECK(queue.size() == 3);
    CHECK(drain(queue) == std::vector<RequestId>{1, 3, 5});
}

TEST_CASE("request_queue: one that is blocked now and then is still overtaken only so often") {
    RequestQueue queue;
    auto         old    = waiting(1, 0, "a");
    old.times.submitted = 0;
    queue.push(std::move(old));
    RequestId next  = 2;
    bool      taken = false;
    for (int turn = 0; turn < 100 && !taken; turn++) {
        for (const char * key : {"a", "b"}) {
            auto urgent            = waiting(next, 10, key);
            urgent.times.submitted = static_cast<double>(next++);
            queue.push(std::move(urgent));
        }
        const bool blocked = turn % 2 == 0;
        const auto went    = queue.take(
            [&](const Request & request) { return !blocked || request.options.context_key != "a"; });
        taken = went && went->id == 1;
    }
    CHECK(taken);
}
