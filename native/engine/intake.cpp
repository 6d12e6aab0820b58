// The reading behind intake.h.
#include "engine/intake.h"

#include "engine/error.h"
#include "engine/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace headrace {

constexpr size_t MAX_INPUTS = 2048; // texts of one embed: all their vectors are in memory together

static float read_scale(const std::string & wanted, const std::string & text) {
    char *      end   = nullptr;
    const float scale = std::strtof(text.c_str(), &end);
    if (text.empty() || end != text.c_str() + text.size() || !std::isfinite(scale)) {
        throw Error(ErrorCode::invalid_option, "adapters: \"" + wanted + "\" has no number behind the colon",
                    {{"option", "adapters"}});
    }
    return scale;
}

// Any seed but 2^32-1, which llama.cpp takes for "draw one yourself".
static int64_t new_seed() {
    return static_cast<int64_t>(std::random_device{}() % 0xFFFFFFFFu);
}

Request Intake::prepare(Submission & submission) const {
    Request request;
    request.id               = submission.id;
    request.prompt           = model_.tokenize(submission.prompt);
    request.options          = std::move(submission.options);
    request.grammar          = std::move(submission.grammar);
    request.preserved_tokens = std::move(submission.preserved_tokens);
    for (const std::string & stop : request.options.stop) {
        if (stop.empty()) {
            throw Error(ErrorCode::invalid_option, "stop: an empty string would end every answer",
                        {{"option", "stop"}});
        }
    }
    if (request.options.seed < 0) {
        request.options.seed = new_seed();
    }
    if (request.prompt.empty()) {
        throw Error(ErrorCode::invalid_request, "the prompt is empty");
    }
    if (!submission.turn_end.empty()) {
        submission.stops.push_back(submission.turn_end);
    }
    // Where the vocabulary has the marker as a token, the same letters in the text are only letters.
    std::erase_if(submission.stops, [&](const std::string & stop) {
        const std::vector<Token> tokens = model_.find_tokens(stop);
        request.stop_tokens.insert(request.stop_tokens.end(), tokens.begin(), tokens.end());
        return !tokens.empty();
    });
    fit(request);
    find_adapters(request);
    request.health_watch = health_watch_;
    if (!request.options.grammar.empty()) {
        request.grammar.text = request.options.grammar;
    }
    check_sampling(request, model_);
    return request;
}

// A prompt needs room for at least one token behind it.
void Intake::fit(Request & request) const {
    const size_t context = decoder_.context_size();
    const bool   shifts  = request.options.overflow == "shift";
    if (shifts && !decoder_.can_shift()) {
        throw Error(ErrorCode::invalid_option, "overflow: the context of this model cannot be shifted",
                    {{"option", "overflow"}});
    }
    if (request.prompt.size() < context) {
        return;
    }
    if (!shifts || context < 2) {
        throw Error(ErrorCode::context_overflow,
                    "the prompt has " + std::to_string(request.prompt.size()) +
                        " tokens, the context holds " + std::to_string(context) +
                        " and needs room for an answer",
                    {{"promptTokens", static_cast<double>(request.prompt.size())},
                     {"contextSize", static_cast<double>(context)}});
    }
    const size_t head = context / 4;
    const size_t tail = std::max<size_t>(context / 2 - head, 1); // the other half is for the answer
    request.slid      = request.prompt.size() - head - tail;
    const auto gap    = request.prompt.begin() + static_cast<ptrdiff_t>(head);
    request.prompt.erase(gap, gap + static_cast<ptrdiff_t>(request.slid));
}

// "name" or "name:scale" → which adapter, and how strongly.
void Intake::find_adapters(Request & request) const {
    for (const std::string & wanted : request.options.adapters) {
        const std::string name = wanted.substr(0, wanted.rfind(':'));
        const auto        find = [&](const std::string & sought) {
            return std::find_if(adapters_.begin(), adapters_.end(),
                                [&](const AdapterFile & file) { return file.name == sought; });
        };
        auto found = find(wanted);
        if (found == adapters_.end()) {
            found = find(name);
        }
        if (found == adapters_.end()) {
            throw Error(ErrorCode::invalid_option, "adapters: none was loaded as \"" + wanted + "\"",
                        {{"option", "adapters"}});
        }
        AdapterUse use{static_cast<size_t>(found - adapters_.begin()), found->scale};
        if (found->name != wanted) {
            use.scale = read_scale(wanted, wanted.substr(name.size() + 1));
        }
        request.adapters.push_back(use);
        char text[64];
        std::snprintf(text, sizeof(text), "%zu*%.9g;", use.index, static_cast<double>(use.scale));
        request.adapters_id += text;
    }
}

// The choice by name, or what the model stands for.
static Pooling choose_pooling(const std::string & name, const Model & model, bool generates) {
    const auto * chosen = std::find(std::begin(POOLING_NAMES), std::end(POOLING_NAMES), name);
    if (chosen != std::end(POOLING_NAMES)) {
        return static_cast<Pooling>(chosen - std::begin(POOLING_NAMES));
    }
    switch (model.pooling()) {
        case LLAMA_POOLING_TYPE_MEAN: return Pooling::mean;
        case LLAMA_POOLING_TYPE_CLS: return Pooling::cls;
        case LLAMA_POOLING_TYPE_LAST: return Pooling::last;
        case LLAMA_POOLING_TYPE_RANK:
            throw Error(
                ErrorCode::unsupported_operation,
                "this model ranks texts and has no vectors of its own: embed needs the option pooling "
                "(mean, cls or last)");
        default: return generates ? Pooling::last : Pooling::mean;
    }
}

static std::vector<Token> prepare_input(const EmbedSubmission & submission, size_t index, const Model & model,
                                        const EmbedLimits & limits) {
    const std::string  where  = "inputs[" + std::to_string(index) + "]";
    std::vector<Token> tokens = model.tokenize(submission.inputs[index]);
    const size_t       limit  = limits.input;
    if (tokens.empty()) {
        throw Error(ErrorCode::invalid_request, where + " is empty, and this model adds no tokens of its own",
                    {{"index", static_cast<double>(index)}});
    }
    if (tokens.size() <= limit) {
        return tokens;
    }
    if (!submission.options.truncate) {
        throw Error(ErrorCode::context_overflow,
                    where + " has " + std::to_string(tokens.size()) + " tokens, this model embeds at most " +
                        std::to_string(limit) + " at once (options contextSize" +
                        (limits.whole ? " and batchSize)" : ")"),
                    {{"index", static_cast<double>(index)},
                     {"promptTokens", static_cast<double>(tokens.size())},
                     {"contextSize", static_cast<double>(limit)}});
    }
    // What closes a text stays at its end, as in every text that the model was trained with.
    const size_t closing = std::min(model.closing_tokens(), limit - 1);
    std::copy(tokens.end() - static_cast<ptrdiff_t>(closing), tokens.end(),
              tokens.begin() + static_cast<ptrdiff_t>(limit - closing));
    tokens.resize(limit);
    return tokens;
}

EmbedRequest prepare_embed(EmbedSubmission & submission, const Model & model, const EmbedLimits & limits,
                           bool generates) {
    if (submission.inputs.empty()) {
        throw Error(ErrorCode::invalid_request, "inputs must be a list with at least one text");
    }
    if (submission.inputs.size() > MAX_INPUTS) {
        throw Error(ErrorCode::invalid_request, "inputs has " + std::to_string(submission.inputs.size()) +
                                                    " texts, at most " + std::to_string(MAX_INPUTS) +
                                                    " may be embedded at once");
    }
    EmbedRequest request;
    request.id                 = submission.id;
    request.pooling            = choose_pooling(submission.options.pooling, model, generates);
    request.normalize          = submission.options.normalize;
    submission.options.pooling = POOLING_NAMES[static_cast<size_t>(request.pooling)];
    for (size_t index = 0; index < submission.inputs.size(); index++) {
        request.inputs.push_back(prepare_input(submission, index, model, limits));
    }
    return request;
}

} // namespace headrace
