// Answers that another engine has begun, over a fake decoder: from every cut the rest is what the first engine
// would have told, and nothing twice. Real models, grammars and chats: tests/python/test_native_replay.py.
#include "engine/replay.h"

#include "engine/error.h"
#include "scheduler_bench.h"

#include <doctest/doctest.h>

using namespace headrace;

namespace {

// What a host knows of an answer after each of its messages.
struct Message {
    ToldAnswer told;
    bool       last = false; // it had the end, too
};

std::vector<Message> messages_of(const Bench & bench, RequestId id) {
    std::vector<Message> messages{{ToldAnswer{{}, "", {}, 0}, false}};
    for (const TokensEvent & event : bench.all<TokensEvent>(id)) {
        ToldAnswer told = messages.back().told;
        told.tokens.insert(told.tokens.end(), event.token_ids.begin(), event.token_ids.end());
        *told.text += event.text;
        if (event.logprobs) {
            told.logprobs.insert(told.logprobs.end(), event.logprobs->begin(), event.logprobs->end());
        }
        messages.push_back({told, false});
    }
    messages.back().last = true;
    return messages;
}

// A new engine for a request that was told so much.
struct Second : Bench {
    using Bench::Bench;

    DoneEvent go_on(Request wanted, const ToldAnswer & told) {
        follow_replay(wanted, told, vocabulary, decoder.context_size());
        return answer(std::move(wanted));
    }
};

ErrorCode refused(Request wanted, ToldAnswer told, std::string & message, size_t context = 1000) {
    try {
        follow_replay(wanted, std::move(told), FakeVocabulary(), context);
    } catch (const Error & error) {
        message = error.what();
        return error.code;
    }
    return ErrorCode::internal;
}

std::vector<Token> letters(const std::string & text) {
    std::vector<Token> tokens;
    for (const char letter : text) {
        tokens.push_back(static_cast<uint8_t>(letter));
    }
    return tokens;
}

std::vector<double> values(const std::vector<TokenLogprobs> & logprobs) {
    std::vector<double> values;
    for (const TokenLogprobs & one : logprobs) {
        values.push_back(one.chosen.logprob);
    }
    return values;
}

// One way that an answer may go; from each of its messages a second engine goes on.
void check_every_cut(const std::string & said, const Request & wanted, size_t context = 1000) {
    CAPTURE(said);
    const size_t prompt = wanted.prompt.size();
    const auto   next   = [=](const std::vector<Token> & sequence) {
        // By what came before, so that a context that has slid does not confuse it.
        size_t count = 0;
        while (count < sequence.size() && sequence[sequence.size() - 1 - count] != 'p') {
            count++;
        }
        return count < said.size() ? static_cast<Token>(static_cast<uint8_t>(said[count])) : FAKE_END;
    };
    Bench           first(next, 1, 32, context);
    const DoneEvent whole    = first.answer(wanted);
    const auto      messages = messages_of(first, wanted.id);
    REQUIRE(messages.size() > 3);
    for (size_t cut = 0; cut + 1 < messages.size(); cut++) {
        CAPTURE(cut);
        const ToldAnswer & told = messages[cut].told;
        Second             second(next, 1, 32, context);
        const DoneEvent    done = second.go_on(wanted, told);
        CHECK(done.text == whole.text);
        CHECK(done.token_ids == whole.token_ids);
        CHECK(done.finish_reason == whole.finish_reason);
        CHECK(done.usage.input_tokens == prompt);
        CHECK(done.usage.output_tokens == whole.usage.output_tokens);
        CHECK(done.stats.replayed == told.tokens.size());
        CHECK(done.stats.slid == whole.stats.slid);
        CHECK(*told.text + second.streamed(wanted.id) == whole.text);
        std::vector<Token> tokens = told.tokens;
        for (const TokensEvent & event : second.all<TokensEvent>(wanted.id)) {
            tokens.insert(tokens.end(), event.token_ids.begin(), event.token_ids.end());
        }
        CHECK(tokens == whole.token_ids);
        CHECK(done.logprobs.has_value() == whole.logprobs.has_value());
        if (done.logprobs && whole.logprobs) {
            CHECK(values(*done.logprobs) == values(*whole.logprobs));
        }
    }
}

} // namespace

TEST_CASE("replay: from every cut an answer is told to its end, no piece twice and none left out") {
    check_every_cut("hello", request(1, 3));
    check_every_cut("a long story", request(1, 3, 7));                            // maxTokens
    check_every_cut("caf\xC3\xA9 \xF0\x9F\x98\x80 \xE2\x82\xAC!", request(1, 3)); // characters across tokens
    check_every_cut("half \xF0\x9F\x98", request(1, 3));                          // an end within a character
    check_every_cut("bad \x80\xFF bytes", request(1, 3));

    Request stops      = request(1, 3);
    stops.options.stop = {"two th", "wo\xE2\x82\xAC"};
    check_every_cut("one two, two w, two three four", stops);
    check_every_cut("one tw", stops); // a stop string that does not come
    check_every_cut("one two wo\xE2\x82\xAC more", stops);

    Request ends     = request(1, 3);
    ends.stop_tokens = {'|'};
    check_every_cut("yes or|no", ends);
}

TEST_CASE("replay: logprobs told before are in the result") {
    Request wanted              = request(1, 3);
    wanted.options.logprobs     = true;
    wanted.options.top_logprobs = 2;
    check_every_cut("hello", wanted);
}

TEST_CASE("replay: up to the last place of the context, and on where it slides") {
    check_every_cut("a text that does not fit", request(1, 6), 12);
    Request slides          = request(1, 5, 40);
    slides.options.overflow = "shift";
    check_every_cut(std::string("abcdefghijklmnopqrstuvwxyz"), slides, 40); // has room
    // What it says no longer depends on its length, as it would not know it.
    const auto ever = [](const std::vector<Token> & sequence) {
        return sequence.back() == 'z' || sequence.back() == 'p' ? Token{'a'} : sequence.back() + 1;
    };
    Bench           first(ever, 1, 32, 16);
    const DoneEvent whole    = first.answer(slides);
    const auto      messages = messages_of(first, 1);
    CHECK(whole.stats.slid > 20);
    for (size_t cut = 0; cut + 1 < messages.size(); cut++) {
        CAPTURE(cut);
        Second          second(ever, 1, 32, 16);
        const DoneEvent done = second.go_on(slides, messages[cut].told);
        CHECK(done.text == whole.text);
        CHECK(done.stats.slid == whole.stats.slid);
        // The context that was left is the one that the first engine had.
        CHECK(second.decoder.sequences == first.decoder.sequences);
    }
}

TEST_CASE("replay: an answer that is complete ends at once, without a pass") {
    struct Case {
        std::string        text;
        std::vector<Token> tokens;
        FinishReason       reason;
    };
    Request wanted      = request(1, 3, 6);
    wanted.options.stop = {"||"};
    for (const Case & one : {Case{"abcdef", letters("abcdef"), FinishReason::length},
                             Case{"ab", letters("ab||"), FinishReason::stop},
                             Case{"ab|", {'a', 'b', '|', FAKE_END}, FinishReason::stop}}) {
        CAPTURE(one.text);
        Second second(speaker(3, "never"));
        // Of the last one the bar was held back, and the end would have told it.
        const bool      held = one.text == "ab|";
        const DoneEvent done = second.go_on(wanted, {one.tokens, held ? "ab" : one.text, {}, 0});
        CHECK(done.text == one.text);
        CHECK(done.token_ids == one.tokens);
        CHECK(done.finish_reason == one.reason);
        CHECK(done.stats.replayed == one.tokens.size());
        CHECK(second.streamed(1) == (held ? "|" : ""));
        CHECK(second.decoder.plans.empty());
        CHECK(second.scheduler.metrics().finished == 1);
    }
}

TEST_CASE("replay: a cancel, waiting or running, keeps what was told") {
    for (const int steps : {0, 1, 3}) {
        CAPTURE(steps);
        Second  second(speaker(3, std::string(50, 'x')));
        Request wanted      = request(1, 3);
        wanted.options.stop = {"xy"};
        follow_replay(wanted, {letters("xxx"), "xx", {}, 0}, second.vocabulary, 1000);
        second.scheduler.submit(std::move(wanted));
        second.run(steps);
        second.scheduler.cancel(1);
        second.run();
        const auto done = second.all<DoneEvent>(1);
        REQUIRE(done.size() == 1);
        CHECK(done[0].finish_reason == FinishReason::cancelled);
        CHECK(done[0].text == "xx" + second.streamed(1));
        CHECK(done[0].text == std::string(3 + static_cast<size_t>(steps), 'x'));
        CHECK(done[0].token_ids.size() == 3 + static_cast<size_t>(steps));
        CHECK(second.scheduler.metrics().cancelled == 1);
    }
}

TEST_CASE("replay: the time before counts towards the deadline") {
    Request wanted             = request(1, 3);
    wanted.options.deadline_ms = 10'000;
    Second second(speaker(3, "hello"));
    CHECK(second.go_on(wanted, {letters("he"), "he", {}, 5'000}).text == "hello");
    Second late(speaker(3, "hello"));
    follow_replay(wanted, {letters("he"), "he", {}, 9'999}, late.vocabulary, 1000);
    late.scheduler.submit(std::move(wanted));
    late.run();
    REQUIRE(late.all<FailedEvent>(1).size() == 1);
    CHECK(late.all<FailedEvent>(1)[0].error.code == ErrorCode::deadline_exceeded);
}

TEST_CASE("replay: rates are of this engine's own tokens, the answer's beginning is not among them") {
    Second          second(speaker(3, "hello"));
    const DoneEvent done = second.go_on(request(1, 3), {letters("hel"), "hel", {}, 0});
    CHECK(done.stats.decode_tokens_per_second * done.stats.itl_p50_ms ==
          doctest::Approx(1000).epsilon(0.1)); // the time of each of its own two
    CHECK(done.stats.prefill_tokens_per_second > 0);
    CHECK(second.decoder.plans.front().prefill_tokens == 6);
    CHECK(second.scheduler.metrics().prefill_tokens == 6);
    CHECK(done.usage.cached_tokens == 0);

    // A second one continues from the first one's context: no more of it is the prompt than the prompt has.
    Request again = request(2, 3);
    follow_replay(again, {letters("hel"), "hel", {}, 0}, second.vocabulary, 1000);
    const DoneEvent more = second.answer(std::move(again));
    CHECK(more.stats.cache.tokens > 3);
    CHECK(more.usage.cached_tokens == 3);
}

TEST_CASE("replay: neighbours go on side by side, and new requests with them") {
    const auto next = [](const std::vector<Token> & sequence) { return sequence.back() == 'p' ? 'a' : 'a'; };
    Second     second(next, 2);
    for (RequestId id = 1; id <= 5; id++) {
        Request wanted = request(id, 2 + id, 9);
        follow_replay(wanted, {std::vector<Token>(id - 1, 'a'), std::string(id - 1, 'a'), {}, 0},
                      second.vocabulary, 1000);
        second.scheduler.submit(std::move(wanted));
    }
    second.run();
    for (RequestId id = 1; id <= 5; id++) {
        REQUIRE(second.all<DoneEvent>(id).size() == 1);
        CHECK(second.all<DoneEvent>(id)[0].text == std::string(9, 'a'));
        CHECK(second.streamed(id) == std::string(9 - (id - 1), 'a'));
    }
}

TEST_CASE("replay: what cannot have been told is refused") {
    const Request wanted = request(1, 3, 5);
    std::string   why;
    CHECK(refused(wanted, {{'a', 257}, "a", {}, 0}, why) == ErrorCode::invalid_request);
    CHECK(why.find("tokenIds[1] is 257, the vocabulary has the tokens 0 to 256") != std::string::npos);
    CHECK(refused(wanted, {{-1}, "", {}, 0}, why) == ErrorCode::invalid_request);
    CHECK(refused(wanted, {{'a', FAKE_END, 'b'}, "ab", {}, 0}, why) == ErrorCode::invalid_request);
    CHECK(why.find("tokenIds[2] comes after the answer's end") != std::string::npos);
    CHECK(refused(wanted, {letters("abcdef"), "abcdef", {}, 0}, why) == ErrorCode::invalid_request);
    CHECK(why.find("tokenIds[5]") != std::string::npos);
    CHECK(refused(wanted, {letters("ab"), "a", {}, 0}, why) == ErrorCode::invalid_request);
    CHECK(why.find("text") != std::string::npos);
    CHECK(refused(wanted, {{}, "a", {}, 0}, why) == ErrorCode::invalid_request);
    CHECK(refused(wanted, {letters("ab"), "ab", {TokenLogprobs{}}, 0}, why) == ErrorCode::invalid_request);
    CHECK(why.find("logprobs") != std::string::npos);
    CHECK(refused(request(1, 10, 50), {letters("abcd"), "abcd", {}, 0}, why, 12) ==
          ErrorCode::invalid_request);
    CHECK(why.find("tokenIds[3]") != std::string::npos); // the context was full with the third
}
