// The soak: thousands of random operations on engines through the C ABI, in two threads side by side.
//
// Run under AddressSanitizer and ThreadSanitizer by `python3 -m build_tools soak`, without them by
// tests/native/test_soak.py. It finds what single requests do not: a lost slot, an event too many, an answer
// that depends on the neighbours, memory that stays, two threads at one datum. Not a measurement of speed.
//
//   headrace_soak MODEL [--operations N] [--seconds S] [--seed K] [--folder PATH]
//
// MODEL is tests/data/moe-trained-q4_k_m.gguf; engines may write caches into the folder. The status is 1 if any promise was broken.
#include "soak/engine_soak.h"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

using namespace headrace::soak;

namespace {

constexpr size_t THREADS = 2; // each with engines of its own: engines do not know of each other

struct Arguments {
    std::string model;
    std::string folder     = ".";
    size_t      operations = 10000;
    size_t      seconds    = 3600;
    size_t      seed       = 1;
};

bool read_number(const char * text, size_t & into) {
    const char * end = text + std::strlen(text);
    return std::from_chars(text, end, into).ptr == end && text != end;
}

bool read_arguments(int count, char ** words, Arguments & into) {
    for (int i = 1; i < count; i++) {
        const std::string word  = words[i];
        const bool        named = word.starts_with("--");
        if (named && i + 1 == count) {
            return false;
        }
        if (!named) {
            into.model = word;
        } else if (word == "--folder") {
            into.folder = words[++i];
        } else {
            size_t * number = word == "--operations" ? &into.operations
                              : word == "--seconds"  ? &into.seconds
                              : word == "--seed"     ? &into.seed
                                                     : nullptr;
            if (!number || !read_number(words[++i], *number)) {
                return false;
            }
        }
    }
    return !into.model.empty();
}

std::string listed(const std::map<std::string, size_t> & counts) {
    std::string text;
    for (const auto & [name, count] : counts) {
        text += (text.empty() ? "" : ", ") + name + " " + std::to_string(count);
    }
    return text;
}

void add(SoakReport & sum, const SoakReport & part) {
    sum.operations += part.operations;
    sum.submitted += part.submitted;
    sum.cancels += part.cancels;
    sum.ticks += part.ticks;
    sum.slot_checks += part.slot_checks;
    sum.left_over += part.left_over;
    sum.counts.accepted += part.counts.accepted;
    sum.counts.done += part.counts.done;
    sum.counts.tokens += part.counts.tokens;
    for (const auto & [reason, count] : part.counts.finish_reasons) {
        sum.counts.finish_reasons[reason] += count;
    }
    for (const auto & [code, count] : part.counts.errors) {
        sum.counts.errors[code] += count;
    }
    sum.violations.insert(sum.violations.end(), part.violations.begin(), part.violations.end());
}

} // namespace

int main(int count, char ** words) {
    Arguments arguments;
    if (!read_arguments(count, words, arguments)) {
        std::fprintf(stderr, "usage: headrace_soak MODEL [--operations N] [--seconds S] [--seed K] "
                             "[--folder PATH]\n");
        return 2;
    }
    using Clock                     = std::chrono::steady_clock;
    const Clock::time_point started = Clock::now();
    const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - started).count(); };
    std::atomic<size_t>      progress = 0;
    std::atomic<size_t>      at_work  = THREADS;
    std::vector<SoakReport>  reports(THREADS);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < THREADS; i++) {
        threads.emplace_back([&, i] {
            SoakPlan plan;
            plan.model  = arguments.model;
            plan.folder = arguments.folder + "/" + std::to_string(i);
            std::filesystem::create_directories(plan.folder);
            plan.seed        = arguments.seed * THREADS + i;
            plan.operations  = arguments.operations / THREADS + (i < arguments.operations % THREADS ? 1 : 0);
            plan.out_of_time = [&] { return elapsed() >= static_cast<double>(arguments.seconds); };
            reports[i]       = run_soak(plan, progress);
            at_work--;
        });
    }
    for (size_t rounds = 0; at_work > 0; rounds++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        if (rounds % 100 == 99) {
            std::printf("progress %zu %zu\n", progress.load(), arguments.operations);
            std::fflush(stdout);
        }
    }
    SoakReport sum;
    for (size_t i = 0; i < THREADS; i++) {
        threads[i].join();
        add(sum, reports[i]);
    }
    for (const std::string & violation : sum.violations) {
        std::printf("violation: %s\n", violation.c_str());
    }
    std::printf(
        "soak: %zu operations (%zu submits, %zu cancels, %zu ticks) in %.1f s, seed %zu; accepted %zu, "
        "done %zu (%s), failed as they should (%s), left over %zu; tokens %zu; slot checks %zu; "
        "violations %zu\n",
        sum.operations, sum.submitted, sum.cancels, sum.ticks, elapsed(), arguments.seed, sum.counts.accepted,
        sum.counts.done, listed(sum.counts.finish_reasons).c_str(), listed(sum.counts.errors).c_str(),
        sum.left_over, sum.counts.tokens, sum.slot_checks, sum.violations.size());
    std::fflush(stdout); // TSan ends the process before stdio does this
    return sum.violations.empty() && sum.operations > 0 ? 0 : 1;
}
