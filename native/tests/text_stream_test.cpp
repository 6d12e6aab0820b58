// What may be shown of a stream: whole characters, and never a part of a stop string (cases G1, G2).
#include "engine/text_stream.h"

#include <doctest/doctest.h>

using headrace::TextStream;

namespace {

struct Shown {
    std::vector<std::string> batches;
    std::string              text;
    bool                     stopped = false;
};

Shown run(std::vector<std::string> stops, const std::vector<std::string> & pieces) {
    TextStream stream(std::move(stops));
    Shown      shown;
    for (const std::string & piece : pieces) {
        shown.stopped = stream.push(piece);
        shown.batches.push_back(stream.take());
        if (shown.stopped) {
            break;
        }
    }
    stream.finish();
    shown.batches.push_back(stream.take());
    for (const std::string & batch : shown.batches) {
        shown.text += batch;
    }
    return shown;
}

std::vector<std::string> bytes_of(const std::string & text) {
    std::vector<std::string> bytes;
    for (char byte : text) {
        bytes.emplace_back(1, byte);
    }
    return bytes;
}

} // namespace

TEST_CASE("text_stream: characters of every length are shown whole, byte by byte") {
    for (const std::string character : {"a", "ж", "語", "🦦"}) {
        const Shown shown = run({}, bytes_of(character));
        CHECK(shown.text == character);
        for (const std::string & batch : shown.batches) {
            CHECK((batch.empty() || batch == character));
        }
    }
}

TEST_CASE("text_stream: a mixed text arrives unchanged however it is cut") {
    const std::string text = "Ω≈ç – Привет 你好 👩‍👩‍👧 end";
    CHECK(run({}, bytes_of(text)).text == text);
    for (size_t cut = 0; cut <= text.size(); cut++) {
        CHECK(run({}, {text.substr(0, cut), text.substr(cut)}).text == text);
    }
}

TEST_CASE("text_stream: bytes that are no character become U+FFFD and do not hold back the rest") {
    CHECK(run({}, {"a\xFF"
                   "b"})
              .text == "a\xEF\xBF\xBD"
                       "b");
    CHECK(run({}, {"\xE8\xAA", "x"}).text == "\xEF\xBF\xBDx");
    CHECK(run({}, {"\xED\xA0\x80"}).text == "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"); // a surrogate
    CHECK(run({}, {"\xC0\xAF"}).text == "\xEF\xBF\xBD\xEF\xBF\xBD");                 // an overlong slash
}

TEST_CASE("text_stream: an unfinished character at the end is dropped") {
    CHECK(run({}, {"ab\xF0\x9F"}).text == "ab");
}

TEST_CASE("text_stream: no part of a stop string is ever shown, however it is cut") {
    const std::string text = "before<END>after";
    for (size_t first = 0; first <= text.size(); first++) {
        for (size_t second = first; second <= text.size(); second++) {
            const Shown shown = run(
                {"<END>"}, {text.substr(0, first), text.substr(first, second - first), text.substr(second)});
            CHECK(shown.stopped);
            CHECK(shown.text == "before");
        }
    }
}

TEST_CASE("text_stream: what only began like a stop string is shown in the end, once") {
    CHECK(run({"<END>"}, bytes_of("a <EN b")).text == "a <EN b");
    CHECK(run({"<END>"}, bytes_of("a <EN")).text == "a <EN");
    CHECK(run({"aab"}, bytes_of("aaaac")).text == "aaaac");
    CHECK(run({"aab"}, bytes_of("aaaab")).text == "aa");
}

TEST_CASE("text_stream: the earliest of several stop strings counts") {
    CHECK(run({"later", "now"}, {"x now later"}).text == "x ");
    CHECK(run({"##", "###"}, bytes_of("a###b")).text == "a");
    CHECK(run({""}, {"an empty stop string stops nothing"}).text == "an empty stop string stops nothing");
}

TEST_CASE("text_stream: a stop string may hold characters of several bytes") {
    CHECK(run({"終わり"}, bytes_of("これで終わりです")).text == "これで");
}
