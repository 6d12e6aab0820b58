// A fuzz driver for compilers without libFuzzer: mutates, runs, watches, keeps what crashes or hangs.
//
// Not guided by coverage but by outcomes: an input whose error message is a new one is mutated further.
// The inputs run in a child process; when it dies or stands still, the input is written to the folder and a
// new child goes on.
//
//   headrace_fuzz_x MODEL FOLDER [--seconds S] [--seed K]     fuzzes; status 1 if anything was found
//   headrace_fuzz_x MODEL FOLDER FILE...                       runs these inputs once, in this process
#include "soak/fuzz_target.h"
#include "soak/random.h"

#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

using namespace headrace::soak;

namespace {

constexpr size_t LARGEST        = size_t{1} << 20; // bytes of an input
constexpr size_t MOST_KEPT      = 300;
constexpr size_t MOST_FINDINGS  = 20;
constexpr double SLOWEST        = 10; // seconds of processor time for one input
constexpr double LONGEST        = 60; // seconds by the clock: it waits for something that does not come
constexpr size_t LEAKS_EVERY    = 500;
constexpr rlim_t LARGEST_MEMORY = rlim_t{4} << 30;

double now() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

double processor_seconds(pid_t process) {
    clockid_t clock = 0;
    timespec  spent = {};
    if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &spent) != 0) {
        return 0;
    }
    return static_cast<double>(spent.tv_sec) + static_cast<double>(spent.tv_nsec) / 1e9;
}

// Shared by the two processes: what the child is at.
struct Desk {
    std::atomic<uint64_t> executions;
    std::atomic<double>   began; // 0: between two inputs
    std::atomic<size_t>   size;
    uint8_t               input[LARGEST];
};

void run_one(Desk & desk, const std::string & input) {
    std::memcpy(desk.input, input.data(), input.size());
    desk.size  = input.size();
    desk.began = now();
    LLVMFuzzerTestOneInput(desk.input, input.size());
    desk.began = 0;
    desk.executions++;
}

std::string mutate(const std::string & from, Random & random) {
    static std::vector<uint8_t> buffer(LARGEST);
    std::memcpy(buffer.data(), from.data(), from.size());
    const size_t size =
        LLVMFuzzerCustomMutator(buffer.data(), from.size(), LARGEST, static_cast<unsigned>(random.next()));
    return {buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(size)};
}

void look_for_leaks() {
#if defined(__SANITIZE_ADDRESS__)
    if (__lsan_do_recoverable_leak_check() != 0) {
        fuzz_finding("memory was leaked by this input or one of those before it");
    }
#endif
}

// The child: until `end`, or death.
void fuzz(Desk & desk, uint64_t seed, double end) {
#if !defined(__SANITIZE_ADDRESS__)
    const rlimit memory = {LARGEST_MEMORY, LARGEST_MEMORY};
    setrlimit(RLIMIT_AS, &memory);
#endif
    Random                        random(seed);
    std::vector<std::string>      kept;
    std::map<std::string, size_t> outcomes;
    for (size_t i = 1; now() < end; i++) {
        const bool  fresh = kept.empty() || random.chance(0.3);
        std::string input = fresh ? mutate("", random) : random.pick(kept);
        for (size_t changes = fresh && random.chance(0.1) ? 0 : 1 + random.below(4); changes > 0; changes--) {
            input = mutate(input, random);
        }
        run_one(desk, input);
        if (outcomes[fuzz_outcome]++ == 0) {
            kept.size() < MOST_KEPT ? kept.push_back(input)
                                    : void(kept[random.below(kept.size())] = std::move(input));
        }
        if (i % LEAKS_EVERY == 0) {
            look_for_leaks();
        }
    }
    look_for_leaks();
    for (const auto & [outcome, count] : outcomes) {
        std::printf("  %8zu  %s\n", count, outcome.c_str());
    }
    std::fflush(stdout);
    _exit(0); // the targets' engines stay: no leak, and nobody looks any more
}

std::string keep(const Desk & desk, const std::string & folder, const char * kind, uint64_t seed) {
    const std::string path = folder + "/" + kind + "-" + std::to_string(seed);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char *>(desk.input), static_cast<std::streamsize>(desk.size));
    return path;
}

// Returns what the child died of: "" if it ended well, "hang" if it had to be killed, "between" if it was between
// two inputs: a leak was found, or the mutator itself is at fault.
std::string watch(const Desk & desk, pid_t child, double & told, size_t seconds, double end) {
    uint64_t executions   = desk.executions;
    double   spent_before = 0; // processor time when the input at work began
    for (;;) {
        int status = 0;
        if (waitpid(child, &status, WNOHANG) == child) {
            const bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
            return well ? "" : desk.began > 0 ? "crash" : "between";
        }
        const double began = desk.began;
        if (desk.executions != executions) {
            executions   = desk.executions;
            spent_before = processor_seconds(child);
        }
        if (began > 0 && (processor_seconds(child) - spent_before > SLOWEST || now() - began > LONGEST)) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return "hang";
        }
        if (now() - told > 2) {
            told = now();
            std::printf("progress %.0f %zu\n", static_cast<double>(seconds) - std::max(0.0, end - told),
                        seconds);
            std::fflush(stdout);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

int run_files(const std::vector<std::string> & files) {
    for (const std::string & file : files) {
        std::ostringstream text;
        text << std::ifstream(file, std::ios::binary).rdbuf();
        const std::string input = text.str();
        LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(input.data()), input.size());
        std::printf("%s: %s\n", file.c_str(), fuzz_outcome.c_str());
    }
    look_for_leaks();
    std::fflush(stdout);
    _exit(0);
}

} // namespace

int main(int count, char ** words) {
    std::vector<std::string> paths;
    size_t                   seconds = 60;
    size_t                   seed    = 1;
    for (int i = 1; i < count; i++) {
        size_t * number = std::strcmp(words[i], "--seconds") == 0 ? &seconds
                          : std::strcmp(words[i], "--seed") == 0  ? &seed
                                                                  : nullptr;
        if (!number) {
            paths.emplace_back(words[i]);
        } else if (++i == count ||
                   std::from_chars(words[i], words[i] + std::strlen(words[i]), *number).ec != std::errc()) {
            paths.clear();
            break;
        }
    }
    if (paths.size() < 2) {
        std::fprintf(stderr, "usage: %s MODEL FOLDER [--seconds S] [--seed K] | FILE...\n", words[0]);
        return 2;
    }
    std::filesystem::create_directories(paths[1]);
    setenv("HEADRACE_FUZZ_MODEL", paths[0].c_str(), 1);
    setenv("HEADRACE_FUZZ_FOLDER", paths[1].c_str(), 1);
    if (paths.size() > 2) {
        return run_files({paths.begin() + 2, paths.end()});
    }

    void * memory = mmap(nullptr, sizeof(Desk), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        std::perror("mmap");
        return 2;
    }
    Desk &       desk     = *static_cast<Desk *>(memory); // zeros are a Desk at rest
    const double started  = now();
    const double end      = started + static_cast<double>(seconds);
    double       told     = started;
    size_t       findings = 0;
    for (uint64_t round = seed * 1000; now() < end && findings < MOST_FINDINGS; round++) {
        desk.began        = 0;
        const pid_t child = fork();
        if (child < 0) {
            std::perror("fork");
            return 2;
        }
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            fuzz(desk, round, end);
        }
        const std::string kind = watch(desk, child, told, seconds, end);
        if (!kind.empty()) {
            findings++;
            std::printf("%s: %s\n", kind.c_str(), keep(desk, paths[1], kind.c_str(), round).c_str());
            std::fflush(stdout);
        }
    }
    std::printf("fuzz: %llu executions in %.1f s, seed %zu; findings %zu\n",
                static_cast<unsigned long long>(desk.executions), now() - started, seed, findings);
    return findings > 0 ? 1 : 0;
}
