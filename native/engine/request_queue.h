// Requests that wait for a slot, and who of them goes next.
//
// By priority, then by age. A request whose context key is in use waits without holding up those behind
// it. Counterpart: scheduler.cpp, which has the slots.
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
    std::vector<Request> waiting_; // in the order in which they go
};

} // namespace headrace
