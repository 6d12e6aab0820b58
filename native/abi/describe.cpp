// The printing behind describe.h.
#include "abi/describe.h"

#include "abi/artifact.h"
#include "abi/chat_options_json.h"
#include "abi/options_json.h"
#include "abi/requests_json.h"
#include "headrace.h"

#include <ggml.h>

namespace headrace {

using nlohmann::json;

namespace {

template <class Options> struct TypeName {
    const char * operator()(int64_t Options::*) const { return "integer"; }
    const char * operator()(double Options::*) const { return "number"; }
    const char * operator()(bool Options::*) const { return "boolean"; }
    const char * operator()(std::string Options::*) const { return "string"; }
    const char * operator()(std::vector<std::string> Options::*) const { return "string[]"; }
    const char * operator()(TokenNumbers Options::*) const { return "map<number>"; } // by token id
};

template <class Options>
void add_options(json & into, const char * scope, std::span<const OptionDeclaration<Options>> declarations) {
    const json defaults = write_options(Options{});
    for (const auto & declared : declarations) {
        into.push_back({{"name", declared.name},
                        {"scope", scope},
                        {"type", std::visit(TypeName<Options>{}, declared.member)},
                        {"minimum", plain_number(declared.minimum)},
                        {"maximum", plain_number(declared.maximum)},
                        {"default", defaults[declared.name]},
                        {"choices", declared.choices},
                        {"localOnly", declared.local_only},
                        {"help", declared.help}});
    }
}

void add_chat_options(json & into) {
    const json defaults = write_options(ChatOptions{});
    for (const ChatOptionDeclaration & declared : chat_option_declarations()) {
        into.push_back({{"name", declared.name},
                        {"scope", "request"},
                        {"type", declared.type},
                        {"default", defaults[declared.name]},
                        {"choices", declared.choices},
                        {"localOnly", declared.local_only},
                        {"help", declared.help}});
    }
}

} // namespace

std::string describe() {
    json options = json::array();
    add_options(options, "load", load_option_declarations());
    add_options(options, "request", generation_option_declarations());
    add_options(options, "embed", embed_option_declarations());
    add_options(options, "tokenize", tokenize_option_declarations());
    add_chat_options(options);
    json errors = json::array();
    for (const ErrorDeclaration & declared : error_declarations()) {
        errors.push_back({{"code", declared.name}, {"help", declared.help}});
    }
    json tensor_types = json::array();
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        const auto type = static_cast<ggml_type>(i);
        if (ggml_type_size(type) > 0) { // numbers of types that are gone have none
            tensor_types.push_back({{"id", i},
                                    {"name", ggml_type_name(type)},
                                    {"blockElements", ggml_blck_size(type)},
                                    {"blockBytes", ggml_type_size(type)}});
        }
    }
    const std::string artifact    = artifact_name();
    const json        description = {
        {"abiVersion", HR_ABI_VERSION},
        {"build",
         {{"host", artifact == "native" ? "native" : "wasm"},
          {"artifact", artifact},
          {"threads", host_facts().max_threads > 1},
          {"ggml", ggml_version()}}},
        {"options", options},
        {"errors", errors},
        {"finishReasons", FINISH_REASON_NAMES},
        {"operations", OPERATION_NAMES},
        {"tensorTypes", tensor_types},
    };
    return description.dump();
}

} // namespace headrace
