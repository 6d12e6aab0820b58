// Every error code of the project, and the exception that carries one.
//
// Declared once here, whoever raises it: hr_describe() prints the table, web/errors.js and
// headrace/errors.py carry the codes on. Not a place for messages: those are written where the error is.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace headrace {

// X(code, help). Codes below the line are raised by hosts (JavaScript, Python), never by the engine.
#define HR_ERROR_CODES(X)                                                                                    \
    X(invalid_option, "an option is unknown, of the wrong type or out of range; detail.option names it")     \
    X(invalid_request, "the request itself is malformed; the message says where")                            \
    X(unsupported_operation, "this endpoint cannot do this operation")                                       \
    X(model_not_found, "there is no file at the given place, or it cannot be opened")                        \
    X(model_invalid, "the file is not a GGUF model that can be run; the message says why")                   \
    X(model_truncated, "the file ends before its tensors do; detail has the expected and actual bytes")      \
    X(out_of_memory, "the model or its context does not fit into memory")                                    \
    X(numeric_fault, "the model computed something that is no number; detail has the figures")               \
    X(context_overflow, "the prompt does not fit into the context; detail has both sizes")                   \
    X(queue_full, "more requests wait than the endpoint takes; detail has the limit")                        \
    X(deadline_exceeded, "the request could not be, or was not, finished by its deadline")                   \
    X(grammar_invalid, "a grammar or a JSON schema cannot be compiled; the message says where")              \
    X(kernel_missing, "nothing computes an operation that the model needs; detail names it")                 \
    X(template_missing, "chat was asked of a model that carries no chat template")                           \
    X(template_rejected, "the model's chat template refuses these messages; the message is its own")         \
    X(gpu_mismatch,                                                                                          \
      "the GPU computes something else than the CPU; detail names the operation and the figures")            \
    X(gpu_failed, "the GPU refused or could not do what it was told; the message is its own")                \
    X(device_lost, "the GPU went away: its driver was reset, or the browser took it back")                   \
    X(engine_aborted, "an assertion failed inside the engine; the instance cannot be used any more")         \
    X(engine_closed, "the endpoint was closed before the request ended")                                     \
    X(cancelled, "the caller cancelled before there was a result")                                           \
    X(internal, "a defect of Headrace; please report it")                                                    \
    /* ---- raised by hosts ---- */                                                                          \
    X(environment_unsupported, "the browser lacks something that was asked for; the message names it")       \
    X(artifact_missing, "the compiled engine is not where it was looked for")                                \
    X(version_mismatch, "the JavaScript and the compiled engine are of different versions")                  \
    X(worker_crashed, "the worker that ran the engine is gone")                                              \
    X(download_failed, "the model could not be fetched; detail.status is the HTTP status, if any")           \
    X(hash_mismatch, "the bytes are not those whose hash was given; they were not kept")                     \
    X(storage_full, "there is no room to keep the model; detail has what it needs and what there is")        \
    X(storage_failed, "the model store cannot be read or written")                                           \
    X(model_in_use, "the stored model is in use, here or in another tab or process")                         \
    X(endpoint_unknown, "the client has no endpoint of this name")

enum class ErrorCode {
#define X(code, help) code,
    HR_ERROR_CODES(X)
#undef X
};

struct ErrorDeclaration {
    ErrorCode    code;
    const char * name;
    const char * help;
};

std::span<const ErrorDeclaration> error_declarations();

const char * error_name(ErrorCode code);

// Named facts about an error, for programs; the message is for people.
using ErrorDetail = std::vector<std::pair<std::string, std::variant<double, std::string>>>;

class Error : public std::runtime_error {
  public:
    Error(ErrorCode error_code, const std::string & message, ErrorDetail facts = {})
        : std::runtime_error(message), code(error_code), detail(std::move(facts)) {}

    ErrorCode   code;
    ErrorDetail detail;
};

} // namespace headrace
