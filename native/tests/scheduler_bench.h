// A scheduler over a fake decoder, with a clock that goes on by 1 ms whenever it is looked at.
//
// Used by the tests of the scheduler; see fake_decoder.h for what the model says.
#pragma once

#include "engine/prefix_store.h"
#include "engine/scheduler.h"

#include "fake_decoder.h"

namespace headrace {

// Says the letters of a sentence, chosen by the request's first prompt token, then ends.
inline FakeDecoder::Next speaker(size_t prompt, const std::string & text) {
    return [=](const std::vector<Token> & sequence) {
        const size_t said = sequence.size() - prompt;
        return said < text.size() ? static_cast<Token>(static_cast<uint8_t>(text[said])) : FAKE_END;
    };
}

inline Request request(RequestId id, size_t prompt, int64_t max_tokens = 100) {
    Request request;
    request.id                  = id;
    request.prompt              = std::vector<Token>(prompt, 'p');
    request.options.temperature = 0;
    request.options.max_tokens  = max_tokens;
    request.options.seed        = 1;
    return request;
}

struct Bench {
    explicit Bench(FakeDecoder::Next next, size_t slots = 1, size_t batch = 32, size_t context = 1000)
        : Bench(std::move(next), {.slots = slots, .batch_size = batch}, context) {}

    Bench(FakeDecoder::Next next, SchedulerOptions options, size_t context = 1000, bool trims = true,
          Drafter * drafter = nullptr)
        : decoder(std::move(next), context), store(store_settings(trims), [this] { return now; }),
          scheduler({decoder, vocabulary, store, events, drafter}, [this] { return now += 1; }, options) {
        decoder.trims = trims;
    }

    static PrefixStoreSettings store_settings(bool trims) {
        PrefixStoreSettings settings;
        settings.memory_bytes = 1 << 20;
        settings.trimmable    = trims;
        return settings;
    }

    void run(int steps = 10000) {
        for (int i = 0; i < steps && scheduler.unfinished() > 0; i++) {
            scheduler.step();
            scheduler.flush();
        }
    }

    // Submits a request, runs it to its end, and gives what it has left.
    DoneEvent answer(Request wanted) {
        const RequestId id = wanted.id;
        scheduler.submit(std::move(wanted));
        run();
        const auto done = all<DoneEvent>(id);
        if (done.size() != 1) {
            throw Error(ErrorCode::internal, "the request did not end well");
        }
        return done.front();
    }

    template <class Kind> std::vector<Kind> all(RequestId id) const {
        std::vector<Kind> found;
        for (const Event & event : events) {
            const auto * kind = std::get_if<Kind>(&event);
            if (kind && kind->id == id) {
                found.push_back(*kind);
            }
        }
        return found;
    }

    std::string streamed(RequestId id) const {
        std::string text;
        for (const TokensEvent & event : all<TokensEvent>(id)) {
            text += event.text;
        }
        return text;
    }

    double         now = 0;
    EventQueue     events;
    FakeVocabulary vocabulary;
    FakeDecoder    decoder;
    PrefixStore    store;
    Scheduler      scheduler;
};

} // namespace headrace
