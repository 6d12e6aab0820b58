// The order behind request_queue.h.
#include "engine/request_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace headrace {

// Urgent requests that may overtake one that could go, while it is the oldest.
static constexpr size_t OVERTAKING = 7;

void RequestQueue::push(Request request) {
    const auto later = [](int64_t priority, const Request & other) {
        return priority > other.options.priority;
    };
    const auto place = std::upper_bound(waiting_.begin(), waiting_.end(), request.options.priority, later);
    waiting_.insert(place, std::move(request));
}

std::optional<Request> RequestQueue::take(const Test & may_go) {
    auto found = std::find_if(waiting_.begin(), waiting_.end(), may_go);
    if (found == waiting_.end()) {
        return std::nullopt;
    }
    auto oldest = found;
    for (auto other = found; other != waiting_.end(); other++) {
        const bool older = other->times.submitted < oldest->times.submitted;
        oldest           = older && may_go(*other) ? other : oldest;
    }
    if (oldest != found && oldest->passed_over++ >= OVERTAKING) {
        found = oldest;
    }
    Request request = std::move(*found);
    waiting_.erase(found);
    return request;
}

std::vector<Request> RequestQueue::take_all(const Test & test) {
    const auto           stays = [&](const Request & request) { return !test(request); };
    const auto           split = std::stable_partition(waiting_.begin(), waiting_.end(), stays);
    std::vector<Request> taken(std::make_move_iterator(split), std::make_move_iterator(waiting_.end()));
    waiting_.erase(split, waiting_.end());
    return taken;
}

bool RequestQueue::cancel(RequestId id) {
    const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                    [&](const Request & request) { return request.id == id; });
    if (found == waiting_.end()) {
        return false;
    }
    found->cancelled = true;
    return true;
}

} // namespace headrace
