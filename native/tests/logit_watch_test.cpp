// The figures of a row of logits, and which rows are called nonsense (case G13).
#include "engine/logit_watch.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

using namespace headrace;

namespace {

constexpr float INF = std::numeric_limits<float>::infinity();
const float     NOT = std::nanf("");

std::vector<float> normal(size_t count, float mean, float deviation) {
    std::mt19937                    random(1);
    std::normal_distribution<float> draw(mean, deviation);
    std::vector<float>              row(count);
    for (float & logit : row) {
        logit = draw(random);
    }
    return row;
}

std::optional<LogitFault> verdict(const std::vector<float> & row, HealthWatch watch = HealthWatch::full) {
    return judge(scan_logits(row), watch);
}

const std::variant<double, std::string> & fact(const Error & error, const std::string & name) {
    for (const auto & [key, value] : error.detail) {
        if (key == name) {
            return value;
        }
    }
    throw std::runtime_error("no " + name);
}

} // namespace

TEST_CASE("logit_watch: the figures are those of a plain loop, whatever the row's length") {
    for (const size_t count : {1u, 3u, 255u, 256u, 257u, 1000u, 4096u, 49152u}) {
        std::vector<float> row = normal(count, 250, 3);
        row[count / 3]         = 400; // twice: the first one counts
        row[count - 1]         = 400;
        double sum = 0, squares = 0;
        for (const float logit : row) {
            sum += static_cast<double>(logit);
        }
        const double mean = sum / static_cast<double>(count);
        for (const float logit : row) {
            squares += (static_cast<double>(logit) - mean) * (static_cast<double>(logit) - mean);
        }
        std::vector<float> maxima;
        const LogitScan    scan = scan_logits(row, &maxima);
        CHECK(scan.count == count);
        CHECK(scan.finite == count);
        CHECK(scan.positive == count);
        CHECK(scan.likeliest == static_cast<Token>(count / 3));
        CHECK(scan.maximum == 400);
        CHECK(scan.minimum == *std::min_element(row.begin(), row.end()));
        CHECK(scan.mean == doctest::Approx(mean));
        CHECK(scan.deviation ==
              doctest::Approx(std::sqrt(squares / static_cast<double>(count))).epsilon(1e-3));
        REQUIRE(maxima.size() == (count + SCAN_BLOCK - 1) / SCAN_BLOCK);
        CHECK(*std::max_element(maxima.begin(), maxima.end()) == 400);
    }
}

TEST_CASE("logit_watch: one value that is no number is found anywhere in the row") {
    for (const size_t at : {0u, 1u, 7u, 255u, 256u, 511u, 999u}) {
        for (const float broken : {NOT, INF}) {
            std::vector<float> row = normal(1000, 0, 3);
            row[at]                = broken;
            CHECK(verdict(row) == LogitFault::not_finite);
            CHECK(verdict(row, HealthWatch::numbers) == LogitFault::not_finite);
            CHECK(verdict(row, HealthWatch::off) == std::nullopt);
            CHECK(scan_logits(row).not_numbers == (std::isnan(broken) ? 1 : 0));
            CHECK(scan_logits(row).infinite == (std::isnan(broken) ? 0 : 1));
            row[at] = -INF;
            CHECK(verdict(row) == std::nullopt);
            CHECK(scan_logits(row).finite == 999);
        }
    }
    CHECK(verdict(std::vector<float>(1000, -INF)) == LogitFault::not_finite);
    CHECK(scan_logits(std::vector<float>(1000, -INF)).likeliest == -1);
}

TEST_CASE("logit_watch: a row of one value is flat, one of small differences is not") {
    for (const float value : {0.0f, 5.0f, -30.0f, 300.0f}) {
        std::vector<float> row(1000, value);
        CHECK(verdict(row) == LogitFault::flat);
        CHECK(verdict(row, HealthWatch::numbers) == LogitFault::flat);
        CHECK(verdict(row, HealthWatch::off) == std::nullopt);
        row[500] += 0.5f;
        CHECK(verdict(row) == std::nullopt);
    }
    std::vector<float> forced(1000, -INF); // all but one token are forbidden
    forced[3] = 1;
    CHECK(verdict(forced) == std::nullopt);
}

TEST_CASE("logit_watch: the shape of a broken pass is a fault, that of shifted or wide honest rows is not") {
    const auto g13 = normal(49152, 16, 19); // 80 % positive
    CHECK(verdict(g13) == LogitFault::shape);
    CHECK(verdict(g13, HealthWatch::numbers) == std::nullopt);
    CHECK(verdict(g13, HealthWatch::off) == std::nullopt);
    std::vector<float> two_values(1000, 20); // the narrowest row that has G13's figures: deviation 8
    std::fill_n(two_values.begin(), 200, 0.0f);
    CHECK(verdict(two_values) == LogitFault::shape);

    CHECK(verdict(normal(49152, 19, 4.6f)) == std::nullopt);  // SmolLM2 at its most
    CHECK(verdict(normal(49152, -17, 4.6f)) == std::nullopt); // and at its least
    CHECK(verdict(normal(49152, 300, 4)) == std::nullopt);    // like BLOOM
    CHECK(verdict(normal(49152, -90, 4)) == std::nullopt);    // like GPT-2
    CHECK(verdict(normal(49152, 0, 19)) == std::nullopt);     // wide, but around 0
    CHECK(verdict(normal(49152, 16, 6.5f)) == std::nullopt);  // below the deviation's threshold
    CHECK(verdict(normal(49152, 7.5f, 8)) == std::nullopt);   // below the mean's
    CHECK(verdict(normal(49152, 9, 30)) == std::nullopt);     // below the share's
    CHECK(verdict(normal(49152, 9, 8)) == LogitFault::shape); // just above all three
}

TEST_CASE("logit_watch: the error tells the figures, the five likeliest tokens, and what switches it off") {
    std::vector<float> row = normal(1000, 16, 19);
    row[7] = 101, row[9] = 103, row[300] = 102, row[999] = 104, row[0] = 100;
    row[5]            = NOT;
    const Error error = numeric_fault(LogitFault::not_finite, scan_logits(row), row);
    CHECK(error.code == ErrorCode::numeric_fault);
    CHECK(std::get<std::string>(fact(error, "top")) == "999:104 9:103 300:102 7:101 0:100");
    CHECK(std::get<std::string>(fact(error, "fault")) == "notFinite");
    CHECK(std::get<double>(fact(error, "logits")) == 1000);
    CHECK(std::get<double>(fact(error, "notNumbers")) == 1);
    CHECK(std::get<double>(fact(error, "infinite")) == 0);
    CHECK(std::get<double>(fact(error, "maximum")) == 104);
    CHECK(std::get<double>(fact(error, "mean")) == doctest::Approx(16).epsilon(0.1));
    CHECK(std::get<double>(fact(error, "deviation")) == doctest::Approx(19).epsilon(0.1));
    CHECK(std::get<double>(fact(error, "sharePositive")) == doctest::Approx(0.8).epsilon(0.1));
    CHECK(std::string(error.what()).find("healthWatch") != std::string::npos);
    CHECK(std::string(error.what()).find("1 of 1000") != std::string::npos);
}

TEST_CASE("logit_watch: the highest logits come in order, of equals the first") {
    const std::vector<float> row{3, NOT, 5, -INF, 5, 1};
    CHECK(highest_logits(row, 3) == std::vector<std::pair<Token, float>>{{2, 5}, {4, 5}, {0, 3}});
    CHECK(highest_logits(row, 20).size() == 4);
    CHECK(highest_logits(row, 0).empty());
}
