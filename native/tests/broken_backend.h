// A backend that computes as the CPU does, and then spoils the output of one operation.
//
// For gpu_self_test_test.cpp. It is the CPU's device but for what it says it supports.
#pragma once

#include <ggml-backend.h>

#include <functional>
#include <string>

namespace headrace {

// What is done to a node's output once it is computed. before: the output's bytes before that.
using Spoil = std::function<void(ggml_tensor & node, const std::string & before)>;

class BrokenBackend {
  public:
    // op: as ggml_op_desc() has it, of the nodes to spoil; empty: none. supports: empty: everything.
    explicit BrokenBackend(std::string op = "", Spoil spoil = nullptr,
                           std::function<bool(const ggml_tensor &)> supports = nullptr);
    ~BrokenBackend();
    BrokenBackend(const BrokenBackend &)             = delete;
    BrokenBackend & operator=(const BrokenBackend &) = delete;

    ggml_backend_t get() const;

    struct Parts;

  private:
    Parts * parts_;
};

} // namespace headrace
