// A GPU of ggml's that computes as the CPU does, and then spoils the output of one operation.
//
// For tests of the GPU's self-test. Models can be loaded on it. Its memory is the program's, but nobody else may
// compute in it.
#pragma once

#include <ggml-backend.h>

#include <functional>
#include <memory>
#include <string>

namespace headrace {

// What is done to a node's output once it is computed. before: the output's bytes before that.
using Spoil = std::function<void(ggml_tensor & node, const std::string & before)>;

class BrokenGpu {
  public:
    // op: as ggml_op_desc() has it. Of the last node of a graph only: in a self-test there is no other; in a model's
    // graph it is the logits. Empty: none is spoiled. supports: empty: everything is.
    explicit BrokenGpu(std::string op = "", Spoil spoil = nullptr,
                       std::function<bool(const ggml_tensor &)> supports = nullptr);
    ~BrokenGpu();
    BrokenGpu(const BrokenGpu &)             = delete;
    BrokenGpu & operator=(const BrokenGpu &) = delete;

    ggml_backend_dev_t device() const;
    ggml_backend_t     backend() const;

    // How many graphs it has computed.
    size_t graphs() const;

    struct Parts;

  private:
    std::unique_ptr<Parts> parts_;
};

} // namespace headrace
