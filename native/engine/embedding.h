// Texts in, vectors out: the path beside the scheduler.
//
// An Embedder queues requests and turns them into forward passes, several inputs to a pass; engine.cpp runs
// at most one pass between two steps of the scheduler. The passes are computed by a TokenEmbedder:
// llama_embedder.h for real models, tests/fake_embedder.h for host tests. It gives a vector per token;
// making one of an input's is done here, so that every pooling works with every model and context.
#pragma once

#include "engine/event.h"
#include "engine/step_pace.h"

#include <deque>
#include <functional>
#include <optional>
#include <span>

namespace headrace {

enum class Pooling { mean, cls, last };

constexpr const char * POOLING_NAMES[] = {"mean", "cls", "last"};

struct EmbedRequest {
    RequestId                       id = 0;
    std::vector<std::vector<Token>> inputs; // each at least one token, at most EmbedLimits::input
    Pooling                         pooling   = Pooling::mean;
    bool                            normalize = false;
};

// What a model and its load options allow.
struct EmbedLimits {
    size_t input     = 1;     // tokens of one input at most
    size_t pass      = 1;     // tokens of one pass, save for an input that must be whole
    size_t sequences = 1;     // inputs of one pass at most
    bool   whole     = false; // tokens see those after them: an input cannot be split over passes
};

// One forward pass. The tokens of a sequence are next to each other and in order.
struct EmbedPass {
    struct Entry {
        Token   token;
        int32_t position; // within its input
        int32_t sequence; // from 0 on
    };
    std::vector<Entry> entries;
    bool               fresh = true; // nothing of an earlier pass is needed any more
    size_t             room  = 0;    // tokens that these inputs have in all, later passes included
};

class TokenEmbedder {
  public:
    virtual ~TokenEmbedder() = default;

    // Throws Error when it cannot be done.
    virtual void run(const EmbedPass & pass) = 0;

    // The vector of an entry of the last pass; valid until the next one.
    virtual std::span<const float> vector(size_t entry) = 0;

    // Forgets everything: after a failure, what is left may spoil the next pass.
    virtual void reset() = 0;
};

class Embedder {
  public:
    // The embedder of tokens and the queue outlive this. clock: in milliseconds, never going back.
    Embedder(TokenEmbedder & model, const EmbedLimits & limits, EventQueue & events,
             std::function<double()> clock);

    void submit(EmbedRequest request);

    // Marks a request; it ends at the next step. Unknown ids are ignored.
    void cancel(RequestId id);

    // One forward pass, if there is work. spare_ms: how long it may take beside streams that run; an encoder's
    // input takes as long as it takes, for it must be whole. None where no stream runs: then the same request
    // is always divided in the same way and gives the same bits. A failure ends the one request it belongs
    // to, but for engine_aborted, which is thrown.
    void step(std::optional<double> spare_ms);

    size_t unfinished() const { return queue_.size(); }

    // Ends every request with the same error.
    void fail_all(const Error & error);

  private:
    struct Work {
        EmbedRequest                    request;
        std::vector<std::vector<float>> vectors;
        size_t                          offset = 0; // tokens done of the input that comes next
        std::vector<double>             sum;        // of the token vectors of that input
        double                          submitted = 0;
        double                          started   = -1;
        bool                            cancelled = false;
    };

    void   drop_cancelled();
    void   plan(const Work & work, size_t budget);
    size_t affordable(double ms) const;
    void   compute(Work & work, size_t budget);
    void   collect(Work & work);
    void   finish_input(Work & work);
    void   finish_request();

    TokenEmbedder &         model_;
    EmbedLimits             limits_;
    EventQueue &            events_;
    std::function<double()> clock_;
    StepPace                pace_;
    std::deque<Work>        queue_;
    EmbedPass               pass_; // kept for its memory
};

} // namespace headrace
