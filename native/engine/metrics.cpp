// The arithmetic behind metrics.h.
#include "engine/metrics.h"

#include <algorithm>
#include <cmath>

namespace headrace {

// Nearest-rank percentile; the values are sorted already.
static double percentile(const std::vector<double> & sorted, double share) {
    if (sorted.empty()) {
        return 0;
    }
    const double rank = std::ceil(share * static_cast<double>(sorted.size()));
    return sorted[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

RequestStats measure(const RequestTimes & times, const Usage & usage, double finished) {
    RequestStats stats;
    stats.total_ms = finished - times.submitted;
    if (times.admitted < 0) {
        stats.queue_ms = stats.total_ms;
        return stats;
    }
    stats.queue_ms = times.admitted - times.submitted;
    if (times.first_token < 0) {
        return stats;
    }
    stats.prefill_ms = times.first_token - times.admitted;
    stats.ttft_ms    = times.first_token - times.submitted;
    if (stats.prefill_ms > 0) {
        stats.prefill_tokens_per_second =
            1000.0 * static_cast<double>(usage.input_tokens - usage.cached_tokens) / stats.prefill_ms;
    }
    const double decode_ms = times.last_token - times.first_token;
    if (decode_ms > 0 && usage.output_tokens > 1) {
        stats.decode_tokens_per_second = 1000.0 * static_cast<double>(usage.output_tokens - 1) / decode_ms;
    }
    std::vector<double> sorted = times.intervals;
    std::sort(sorted.begin(), sorted.end());
    stats.itl_p50_ms = percentile(sorted, 0.50);
    stats.itl_p95_ms = percentile(sorted, 0.95);
    return stats;
}

} // namespace headrace
