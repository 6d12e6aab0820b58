// The random walk behind engine_soak.h.
#include "soak/engine_soak.h"

#include <limits>

namespace headrace::soak {

namespace {

constexpr int64_t SLOTS       = 3;
constexpr size_t  MOST_OPEN   = 12; // past this many open requests the next operation is a tick
constexpr size_t  CHECK_EVERY = 400;

class Life {
  public:
    Life(const SoakPlan & plan, CommandMaker & maker, SoakReport & report)
        : maker_(maker), report_(report), loaded_(engine_.load(maker.load(plan.model))) {
        if (!loaded_) {
            ledger_.violation("the model was not loaded");
        }
        take_events();
    }

    bool fit() const { return loaded_ && ledger_.violations().empty(); }

    void operate() {
        Random &     random = maker_.random();
        const double kind   = random.share();
        if (ledger_.open().size() >= MOST_OPEN || kind < 0.25) {
            tick(random.chance(0.3) ? random.share() * 3 : 0);
        } else if (kind < 0.60) {
            submit(maker_.valid(next_id_));
        } else if (kind < 0.72) {
            submit(maker_.broken(next_id_));
        } else if (kind < 0.90) {
            cancel();
        } else {
            take_events();
        }
    }

    // Everything ends, and every slot then takes work again.
    void check_slots() {
        drain();
        std::vector<int64_t> ids;
        for (int64_t slot = 0; slot < SLOTS; slot++) {
            ids.push_back(next_id_);
            submit(maker_.lasting(next_id_, 40));
        }
        bool together = false;
        for (int ticks = 0; ticks < 100 && !together; ticks++) {
            tick(0);
            take_events();
            together = std::all_of(ids.begin(), ids.end(), [&](int64_t id) { return ledger_.moved(id); });
        }
        if (!together) {
            ledger_.violation("a slot is lost: as many requests as slots never moved in one tick");
        }
        for (const int64_t id : ids) {
            cancel(id);
        }
        drain();
        report_.slot_checks++;
    }

    // finished: whether all requests should have ended; otherwise the engine is freed in the midst of them.
    void close(bool finished) {
        if (finished) {
            check_slots();
            ledger_.close();
        } else {
            take_events();
            report_.left_over += ledger_.open().size();
        }
        const Counts & counts = ledger_.counts();
        report_.counts.accepted += counts.accepted;
        report_.counts.done += counts.done;
        report_.counts.tokens += counts.tokens;
        for (const auto & [reason, count] : counts.finish_reasons) {
            report_.counts.finish_reasons[reason] += count;
        }
        for (const auto & [code, count] : counts.errors) {
            report_.counts.errors[code] += count;
        }
        report_.violations.insert(report_.violations.end(), ledger_.violations().begin(),
                                  ledger_.violations().end());
    }

  private:
    void submit(const Command & command) {
        if (command.has_id) {
            ledger_.submitted(next_id_++, command.expectation);
        } else {
            ledger_.submitted_without_id();
        }
        engine_.submit(command.text);
        report_.submitted++;
    }

    void cancel(int64_t id) {
        ledger_.cancelled(id);
        engine_.cancel(static_cast<double>(id));
        report_.cancels++;
    }

    // A request at work, one that has ended or never was, or a number that is no id at all.
    void cancel() {
        Random &                   random = maker_.random();
        const std::vector<int64_t> open   = ledger_.open();
        if (!open.empty() && random.chance(0.6)) {
            const int64_t id = random.pick(open);
            cancel(id);
            if (random.chance(0.2)) {
                cancel(id);
            }
        } else if (random.chance(0.7)) {
            cancel(random.between(1, next_id_ + 2));
        } else {
            using Limits               = std::numeric_limits<double>;
            constexpr double numbers[] = {0, -1, 0.5, 1e300, Limits::infinity(), Limits::quiet_NaN(), 9e18};
            engine_.cancel(random.pick(numbers));
            report_.cancels++;
        }
    }

    void tick(double budget_ms) {
        const int32_t unfinished = engine_.tick(budget_ms);
        ticks_++;
        report_.ticks++;
        if (unfinished < 0) {
            ledger_.violation("the engine has failed");
            take_events();
            loaded_ = false;
        } else if (maker_.random().chance(0.5) || unfinished == 0) {
            take_events();
            if (static_cast<size_t>(unfinished) != ledger_.open().size()) {
                ledger_.violation("a tick tells of " + std::to_string(unfinished) + " unfinished requests, " +
                                  std::to_string(ledger_.open().size()) + " have not ended");
            }
        }
    }

    void take_events() {
        try {
            ledger_.receive(engine_.take_events(), ticks_);
        } catch (const nlohmann::json::exception & error) {
            ledger_.violation(std::string("the events are not what they should be: ") + error.what());
        }
        ticks_ = 0;
    }

    void drain() {
        take_events();
        for (int ticks = 0; ticks < 10000 && fit() && !ledger_.open().empty(); ticks++) {
            tick(5);
            take_events();
        }
        if (!ledger_.open().empty()) {
            ledger_.violation(std::to_string(ledger_.open().size()) + " requests do not end");
        }
    }

    CommandMaker & maker_;
    SoakReport &   report_;
    Ledger         ledger_;
    AbiEngine      engine_;
    bool           loaded_;
    int64_t        next_id_ = 1;
    size_t         ticks_   = 0; // since events were last taken
};

} // namespace

SoakReport run_soak(const SoakPlan & plan, std::atomic<size_t> & progress) {
    SoakReport   report;
    CommandMaker maker(plan.seed, SLOTS, plan.folder);
    for (size_t life = 0; life < plan.lives && report.violations.empty() && !plan.out_of_time(); life++) {
        const size_t share = plan.operations / plan.lives + (life < plan.operations % plan.lives ? 1 : 0);
        Life         engine(plan, maker, report);
        for (size_t i = 0; i < share && engine.fit() && !plan.out_of_time(); i++) {
            engine.operate();
            progress++;
            report.operations++;
            if (i % CHECK_EVERY == CHECK_EVERY - 1 && engine.fit()) {
                engine.check_slots();
            }
        }
        engine.close(engine.fit() && (life % 2 == 0 || life + 1 == plan.lives));
    }
    return report;
}

} // namespace headrace::soak
