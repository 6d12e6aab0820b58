// Requests that wait for a slot, and who of them goes next.
//
// By priority, then by age; but whoever waits longest is passed over seven times in a row at most, so that a
// steady stream of urgent requests does not shut out the others for ever. A request whose context key is in use
// waits without holding up those behind it. Counterpart: scheduler.cpp, which has the slots.
#pragma once

#include "engine/request.h"

#include <functional>
#include <optional>
#include <vector>

namespace headrace {

class RequestQueue {
  public:
    using Test = std::function<bool(const Request &)>;

    void push(Request request);

    // Takes out the first request that may go now.
    std::optional<Request> take(const Test & may_go);

    // Takes out all requests of which this is true, in order.
    std::vector<Request> take_all(const Test & test);

    // Marks a request; false when it is not here.
    bool cancel(RequestId id);

    size_t size() const { return waiting_.size(); }

  private:
    std::vector<Request> waiting_; // by priority, then by age
};

} // namespace headrace
