// ggml's tables of functions behind broken_backend.h.
#include "broken_backend.h"

#include <ggml-cpp.h>
#include <ggml-cpu.h>

#include <ggml/src/ggml-backend-impl.h>

#include <utility>

namespace headrace {

struct BrokenBackend::Parts {
    ggml_backend_ptr                         cpu{ggml_backend_cpu_init()};
    ggml_backend                             backend{};
    ggml_backend_device                      device{};
    std::string                              op;
    Spoil                                    spoil;
    std::function<bool(const ggml_tensor &)> supports;
};

static ggml_status compute(ggml_backend_t backend, ggml_cgraph * graph) {
    auto &        parts = *static_cast<BrokenBackend::Parts *>(backend->context);
    ggml_tensor * last  = ggml_graph_node(graph, -1);
    const char *  data  = static_cast<const char *>(last->data);
    const auto    bytes = std::string(data, ggml_nbytes(last));

    const ggml_status status = ggml_backend_graph_compute(parts.cpu.get(), graph);
    if (parts.spoil && parts.op == ggml_op_desc(last)) {
        parts.spoil(*last, bytes);
    }
    return status;
}

static bool supports_op(ggml_backend_dev_t device, const ggml_tensor * node) {
    const auto & parts = *static_cast<BrokenBackend::Parts *>(device->context);
    return !parts.supports || parts.supports(*node);
}

static ggml_backend_buffer_type_t buffer_type(ggml_backend_dev_t) {
    return ggml_backend_cpu_buffer_type();
}

BrokenBackend::BrokenBackend(std::string op, Spoil spoil, std::function<bool(const ggml_tensor &)> supports)
    : parts_(new Parts) {
    parts_->op       = std::move(op);
    parts_->spoil    = std::move(spoil);
    parts_->supports = std::move(supports);
    ggml_backend_cpu_set_n_threads(parts_->cpu.get(), 1);

    parts_->device.iface.get_buffer_type = buffer_type;
    parts_->device.iface.supports_op     = supports_op;
    parts_->device.context               = parts_;
    parts_->backend.iface.get_name       = [](ggml_backend_t) { return "Broken"; };
    parts_->backend.iface.graph_compute  = compute;
    parts_->backend.device               = &parts_->device;
    parts_->backend.context              = parts_;
}

BrokenBackend::~BrokenBackend() {
    delete parts_;
}

ggml_backend_t BrokenBackend::get() const {
    return &parts_->backend;
}

} // namespace headrace
