// Speculative decoding in the scheduler: whatever is guessed, the answer is that of plain decoding.
#include "scheduler_bench.h"

#include <doctest/doctest.h>

using namespace headrace;

namespace {

const std::string STORY =
    "once upon a time there was a river that turned a wheel, and the wheel turned a mill";

// Guesses from a text of its own, whatever the model says.
class ScriptedDrafter : public Drafter {
  public:
    explicit ScriptedDrafter(std::string script, size_t length)
        : script_(std::move(script)), length_(length) {}

    void begin(size_t slot, std::span<const Token>) override { said_[slot] = 0; }
    void end(size_t slot) override { said_.erase(slot); }
    void append(size_t slot, Token) override { said_[slot]++; }

    bool draft(size_t slot, size_t at_most, std::vector<Token> & guesses) override {
        for (size_t i = said_[slot]; i < script_.size() && guesses.size() < std::min(at_most, length_); i++) {
            guesses.push_back(script_[i]);
        }
        return true;
    }

  private:
    std::string              script_;
    size_t                   length_;
    std::map<size_t, size_t> said_;
};

DoneEvent told(Drafter * drafter, Request wanted, size_t * passes = nullptr, size_t slots = 2) {
    Bench bench(speaker(3, std::string(STORY)), {.slots = slots, .batch_size = 32}, 1000, true, drafter);
    const DoneEvent done = bench.answer(std::move(wanted));
    CHECK(bench.streamed(wanted.id) == done.text);
    for (const auto & [slot, sequence] : bench.decoder.sequences) {
        CHECK(sequence.size() <= 3 + done.token_ids.size());
    }
    if (passes) {
        *passes = bench.decoder.plans.size();
    }
    return done;
}

} // namespace

TEST_CASE("scheduler_drafts: right guesses save passes and change nothing") {
    ScriptedDrafter drafter(STORY, 7);
    size_t          plain = 0, faster = 0;
    const DoneEvent expected = told(nullptr, request(1, 3), &plain);
    const DoneEvent drafted  = told(&drafter, request(1, 3), &faster);
    CHECK(drafted.text == STORY);
    CHECK(drafted.token_ids == expected.token_ids);
    CHECK(faster * 4 < plain);
    CHECK(drafted.stats.accepted_drafts + 20 > STORY.size());
}

TEST_CASE("scheduler_drafts: wrong guesses change nothing") {
    std::string wrong(STORY);
    for (size_t i = 0; i < wrong.size(); i += 5) {
        wrong[i] = '#';
    }
    ScriptedDrafter drafter(wrong, 7);
    const DoneEvent done = told(&drafter, request(1, 3));
    CHECK(done.text == STORY);
    CHECK(done.stats.drafted > done.stats.accepted_drafts);
    CHECK(done.stats.accepted_drafts > 0);
}

TEST_CASE("scheduler_drafts: a stop string or a limit among the guesses ends the answer just there") {
    ScriptedDrafter drafter(STORY, 7);
    auto            stopped = request(1, 3);
    stopped.options.stop    = {"river"};
    CHECK(told(&drafter, std::move(stopped)).text == STORY.substr(0, STORY.find("river")));
    for (int64_t limit = 1; limit < 20; limit++) {
        const DoneEvent done = told(&drafter, request(1, 3, limit));
        CHECK(done.text == STORY.substr(0, static_cast<size_t>(limit)));
        CHECK(done.token_ids.size() == static_cast<size_t>(limit));
    }
}

TEST_CASE(
    "scheduler_drafts: after a rejected guess the next request with the key continues from what is true") {
    ScriptedDrafter drafter("once upon a timeXXXXXXXXXXXX", 7);
    Bench bench(speaker(3, std::string(STORY)), {.slots = 1, .batch_size = 32}, 1000, true, &drafter);
    auto  first               = request(1, 3, 18);
    first.options.context_key = std::string("a");
    auto       prompt         = first.prompt;
    const auto answer         = bench.answer(std::move(first)).token_ids;
    CHECK(bench.decoder.sequences.at(0).size() == 3 + answer.size() - 1);
    prompt.insert(prompt.end(), answer.begin(), answer.end());
    auto second                = request(2, 3, 10);
    second.prompt              = prompt;
    second.options.context_key = std::string("a");
    CHECK(bench.answer(std::move(second)).text == STORY.substr(18, 10));
}
