// The C ABI of include/headrace.h: JSON in, engine calls, JSON out, and the line no exception crosses.
//
// Not a place for decisions: what a command means is decided in engine/ and chat/.
#include "headrace.h"

#include "abi/artifact.h"
#include "abi/describe.h"
#include "abi/events_json.h"
#include "abi/requests_json.h"
#include "chat/chat_template.h"
#include "chat/schema_check.h"
#include "engine/abort_guard.h"
#include "engine/engine.h"

#include <optional>
#include <utility>

using namespace headrace;

struct hr_engine {
    Engine                      engine{host_facts()};
    std::optional<ChatTemplate> chat;  // made when the first chat asks for it
    ChatRequests                chats; // what events need to know of requests in progress
    std::string                 written;
    EngineFacts                 facts;
    enum { empty, ready, failed } state = empty;
    bool speechless                     = false; // there was no memory to write down what went wrong
};

namespace {

// The error that is being handled, whatever was thrown. Only to be called from a catch clause.
Error current_error() {
    try {
        throw;
    } catch (const Error & error) {
        return error;
    } catch (const std::bad_alloc &) {
        return Error(ErrorCode::out_of_memory, "there is not enough memory");
    } catch (const std::exception & error) {
        return Error(ErrorCode::internal, error.what());
    } catch (...) {
        return Error(ErrorCode::internal, "an unknown exception was thrown");
    }
}

// Never throws: it is called where an exception would cross the C ABI.
void fail(hr_engine & handle, const Error & error) {
    handle.state = hr_engine::failed;
    try {
        handle.engine.fail(error);
    } catch (...) {
        handle.speechless = true;
    }
}

const ChatTemplate & chat_template(hr_engine & handle) {
    if (!handle.chat) {
        handle.chat.emplace(handle.engine.model());
    }
    return *handle.chat;
}

Submission prepare(hr_engine & handle, SubmitCommand command, RequestId id) {
    Submission submission;
    submission.id      = id;
    submission.options = std::move(command.options);
    if (command.replay.seed) {
        submission.options.seed = *command.replay.seed;
    }
    ChatRequest chat;
    if (command.operation == Operation::query) {
        submission.prompt = std::move(command.prompt);
        if (command.chat.response_format.type != ResponseFormat::text) {
            submission.grammar.text = schema_grammar(command.chat.response_format.schema);
        }
    } else {
        const ChatTemplate & layout   = chat_template(handle);
        RenderedChat         rendered = layout.render(command.messages, command.chat);
        submission.prompt             = std::move(rendered.prompt);
        submission.grammar            = std::move(rendered.grammar);
        submission.preserved_tokens   = std::move(rendered.preserved_tokens);
        submission.stops              = std::move(rendered.stop);
        submission.turn_end           = layout.turn_end();
        if (rendered.reply) {
            chat.reply.emplace(std::move(rendered.reply));
        }
    }
    submission.told = std::move(command.replay.answer);
    if (chat.reply) {
        submission.told.text.reset(); // the parts were told, not the text that they were taken from
        chat.told = std::move(command.replay.parts);
    } else if (!command.replay.parts.reasoning.empty() || !command.replay.parts.tool_calls.empty()) {
        throw Error(ErrorCode::invalid_request,
                    "replay: the answer to this request has neither reasoning nor toolCalls");
    }
    chat.options     = std::move(command.chat);
    handle.chats[id] = std::move(chat);
    return submission;
}

void generate(hr_engine & handle, SubmitCommand command, RequestId id) {
    if (!handle.engine.generates()) {
        throw Error(ErrorCode::unsupported_operation,
                    std::string("this model cannot ") +
                        OPERATION_NAMES[static_cast<size_t>(command.operation)] +
                        ": it turns texts into vectors (embed)");
    }
    handle.engine.check_room(); // before a template is rendered for nothing
    handle.engine.submit(prepare(handle, std::move(command), id));
}

void count_tokens(hr_engine & handle, const SubmitCommand & command, RequestId id) {
    const bool of_chat = !command.messages.empty();
    handle.engine.count_tokens(
        id, of_chat ? chat_template(handle).render(command.messages, command.chat).prompt : command.text,
        command.tokenize_options);
}

void submit(hr_engine & handle, SubmitCommand command, RequestId id) {
    Engine & engine = handle.engine;
    switch (command.operation) {
        case Operation::query:
        case Operation::chat: generate(handle, std::move(command), id); break;
        case Operation::embed:
            engine.embed({id, std::move(command.inputs), std::move(command.embed_options)});
            break;
        case Operation::tokenize: engine.tokenize(id, command.text, command.tokenize_options); break;
        case Operation::detokenize: engine.detokenize(id, command.token_ids); break;
        case Operation::audit: engine.audit(id); break;
        case Operation::metrics: engine.events().push_back(MetricsEvent{id, engine.metrics()}); break;
        case Operation::count_tokens: count_tokens(handle, command, id); break;
        case Operation::apply_template:
            engine.events().push_back(
                RenderedEvent{id, chat_template(handle).render(command.messages, command.chat).prompt});
            break;
    }
}

// Ends a request that was not taken; the engine as well, if it was aborted over it.
void refuse(hr_engine & handle, RequestId id, const Error & raised) {
    const bool  aborted = raised.code == ErrorCode::engine_aborted;
    const Error error   = aborted ? handle.engine.explain(raised) : raised;
    try {
        handle.engine.events().push_back(FailedEvent{id, error});
    } catch (...) {
        handle.speechless = true;
    }
    if (aborted) {
        fail(handle, error);
    }
}

void require_ready(const hr_engine & handle) {
    if (handle.state == hr_engine::empty) {
        throw Error(ErrorCode::invalid_request, "no model is loaded yet");
    }
    if (handle.state == hr_engine::failed) {
        throw Error(ErrorCode::engine_closed, "the engine has failed before");
    }
}

} // namespace

int32_t hr_abi_version(void) {
    return HR_ABI_VERSION;
}

const char * hr_describe(void) {
    try {
        static const std::string description = describe();
        return description.c_str();
    } catch (...) {
        return "{}"; // no memory for it
    }
}

hr_engine * hr_engine_create(void) {
    try {
        return new hr_engine;
    } catch (...) {
        return nullptr;
    }
}

int32_t hr_engine_load(hr_engine * handle, const char * json, size_t length, hr_progress_fn progress,
                       void * user) {
    try {
        if (handle->state != hr_engine::empty) {
            throw Error(ErrorCode::invalid_request, "this engine has been loaded before");
        }
        const LoadCommand  command = read_load_command({json, length});
        const LoadProgress report  = [&](double fraction) {
            return !progress || progress(user, fraction) != 0;
        };
        handle->facts = {handle->engine.load(command.files, command.options, command.proven_ops, report),
                         command.options.backend};
        handle->state = hr_engine::ready;
        return 1;
    } catch (...) {
        fail(*handle, current_error());
        return 0;
    }
}

void hr_engine_submit(hr_engine * handle, const char * json, size_t length) {
    RequestId id = 0;
    try {
        with_abort_guard([&] {
            SubmitCommand command = read_submit_command({json, length}, id);
            require_ready(*handle);
            submit(*handle, std::move(command), id);
        });
    } catch (...) {
        refuse(*handle, id, current_error());
    }
}

void hr_engine_cancel(hr_engine * handle, double request_id) {
    constexpr double largest = 9007199254740992.0; // 2^53: past it a double is not one id, or none at all
    if (handle->state == hr_engine::ready && request_id > 0 && request_id <= largest) {
        handle->engine.cancel(static_cast<RequestId>(request_id));
    }
}

int32_t hr_engine_tick(hr_engine * handle, double budget_ms) {
    if (handle->state != hr_engine::ready) {
        return handle->state == hr_engine::failed ? -1 : 0;
    }
    try {
        return static_cast<int32_t>(handle->engine.tick(budget_ms));
    } catch (...) {
        fail(*handle, current_error());
        return -1;
    }
}

const char * hr_engine_events(hr_engine * handle, size_t * length) {
    static constexpr char speechless[] =
        R"([{"type":"engine_failed","error":{"code":"out_of_memory","message":"there is not enough memory","detail":{}}}])";
    try {
        EventQueue & events = handle->engine.events();
        handle->written     = write_events(events, handle->facts, handle->chats);
        events.clear();
    } catch (...) {
        handle->speechless = true;
    }
    if (std::exchange(handle->speechless, false)) {
        handle->state = hr_engine::failed;
        *length       = sizeof(speechless) - 1;
        return speechless;
    }
    *length = handle->written.size();
    return handle->written.c_str();
}

void hr_engine_free(hr_engine * handle) {
    delete handle;
}
