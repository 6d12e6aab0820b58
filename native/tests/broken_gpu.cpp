// ggml's tables of functions behind broken_gpu.h.
#include "broken_gpu.h"

#include <ggml-cpp.h>
#include <ggml-cpu.h>

#include <ggml/src/ggml-backend-impl.h>

#include <utility>

namespace headrace {

struct BrokenGpu::Parts {
    std::string                              op;
    Spoil                                    spoil;
    std::function<bool(const ggml_tensor &)> supports;
    ggml_backend_ptr                         cpu{ggml_backend_cpu_init()};
    ggml_backend_reg                         registry{};
    ggml_backend_device                      device{};
    ggml_backend_buffer_type                 memory{};
    size_t                                   graphs = 0;
    ggml_backend_ptr                         backend; // last, to end first
};

namespace {

BrokenGpu::Parts & parts_of(ggml_backend_dev_t device) {
    return *static_cast<BrokenGpu::Parts *>(device->context);
}

ggml_status compute(ggml_backend_t backend, ggml_cgraph * graph) {
    BrokenGpu::Parts & parts = parts_of(backend->device);
    ggml_tensor *      last  = ggml_graph_node(graph, -1);
    parts.graphs++;
    const bool  spoil = parts.spoil && parts.op == ggml_op_desc(last);
    std::string before;
    if (spoil) {
        before.assign(static_cast<const char *>(last->data), ggml_nbytes(last));
    }
    const ggml_status status = ggml_backend_graph_compute(parts.cpu.get(), graph);
    if (spoil) {
        parts.spoil(*last, before);
    }
    return status;
}

ggml_backend_t open(ggml_backend_dev_t device, const char *) {
    ggml_backend_i functions{};
    functions.get_name      = [](ggml_backend_t) { return "Broken GPU"; };
    functions.free          = [](ggml_backend_t backend) { delete backend; };
    functions.graph_compute = compute;
    return new ggml_backend{nullptr, functions, device, nullptr};
}

bool supports(ggml_backend_dev_t device, const ggml_tensor * node) {
    const BrokenGpu::Parts & parts = parts_of(device);
    return !parts.supports || parts.supports(*node);
}

ggml_backend_buffer_t allocate(ggml_backend_buffer_type_t type, size_t size) {
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size);
    buffer->buft                 = type;
    return buffer;
}

ggml_backend_device_i device_functions() {
    ggml_backend_device_i functions{};
    functions.get_name        = [](ggml_backend_dev_t) { return "Broken"; };
    functions.get_description = [](ggml_backend_dev_t) { return "a GPU that is broken"; };
    functions.get_type        = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; };
    functions.init_backend    = open;
    functions.supports_op     = supports;
    functions.get_buffer_type = [](ggml_backend_dev_t device) { return &parts_of(device).memory; };
    functions.supports_buft   = [](ggml_backend_dev_t device, ggml_backend_buffer_type_t type) {
        return type == &parts_of(device).memory;
    };
    functions.get_memory = [](ggml_backend_dev_t, size_t * free, size_t * total) {
        *free = *total = size_t{1} << 30;
    };
    functions.get_props = [](ggml_backend_dev_t, ggml_backend_dev_props * props) { *props = {}; };
    return functions;
}

} // namespace

BrokenGpu::BrokenGpu(std::string op, Spoil spoil, std::function<bool(const ggml_tensor &)> supported)
    : parts_(new Parts) {
    parts_->op       = std::move(op);
    parts_->spoil    = std::move(spoil);
    parts_->supports = std::move(supported);
    ggml_backend_cpu_set_n_threads(parts_->cpu.get(), 1);

    parts_->registry.iface.get_name         = [](ggml_backend_reg_t) { return "Broken"; };
    parts_->registry.iface.get_device_count = [](ggml_backend_reg_t) { return size_t{1}; };

    parts_->device = {device_functions(), &parts_->registry, parts_.get()};

    parts_->memory.iface.get_name      = [](ggml_backend_buffer_type_t) { return "Broken"; };
    parts_->memory.iface.alloc_buffer  = allocate;
    parts_->memory.iface.get_alignment = [](ggml_backend_buffer_type_t) {
        return ggml_backend_buft_get_alignment(ggml_backend_cpu_buffer_type());
    };
    parts_->memory.device = &parts_->device;

    parts_->backend.reset(open(&parts_->device, nullptr));
}

BrokenGpu::~BrokenGpu() = default;

ggml_backend_dev_t BrokenGpu::device() const {
    return &parts_->device;
}

size_t BrokenGpu::graphs() const {
    return parts_->graphs;
}

ggml_backend_t BrokenGpu::backend() const {
    return parts_->backend.get();
}

} // namespace headrace
