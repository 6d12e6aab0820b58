// Tests of webgpu_cpp.h in a browser, without ggml: each exported function is a test, see tests/browser/test_webgpu_layer.py.
//
// Not a host test: what is tested is the way to navigator.gpu and back. A test returns nullptr, or what went wrong.
#include "webgpu/faults.h"

#include <webgpu/webgpu_cpp.h>

#include <array>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#define EXPORTED extern "C" __attribute__((used, visibility("default")))

namespace {

using namespace wgpu;

constexpr auto MODE = CallbackMode::AllowSpontaneous;

struct Gpu {
    Instance instance = CreateInstance(nullptr);
    Adapter  adapter;
    Device   device;
    Queue    queue;

    std::string error; // uncaptured, of the device
    bool        lost = false;
};

Gpu * gpu = nullptr; // lives as long as the program, like an engine's

std::string problem;

const char * failed(const std::string & what) {
    problem = what;
    return problem.c_str();
}

std::string fault_text() {
    const auto fault = headrace::webgpu::take_fault();
    return fault ? ": " + fault->message : "";
}

Buffer make_buffer(uint64_t size, BufferUsage usage) {
    BufferDescriptor descriptor;
    descriptor.label = "test";
    descriptor.size  = size;
    descriptor.usage = usage;
    return gpu->device.CreateBuffer(&descriptor);
}

Buffer storage(uint64_t size) {
    return make_buffer(size, BufferUsage::Storage | BufferUsage::CopyDst | BufferUsage::CopySrc);
}

bool wait_for_queue() {
    QueueWorkDoneStatus result = QueueWorkDoneStatus::Error;
    const WaitStatus    status = gpu->instance.WaitAny(
        gpu->queue.OnSubmittedWorkDone(MODE, [&](auto given, StringView) { result = given; }), UINT64_MAX);
    return status == WaitStatus::Success && result == QueueWorkDoneStatus::Success;
}

std::vector<float> read(const Buffer & buffer, size_t count) {
    const size_t         bytes   = count * sizeof(float);
    const Buffer         staging = make_buffer(bytes, BufferUsage::MapRead | BufferUsage::CopyDst);
    const CommandEncoder encoder = gpu->device.CreateCommandEncoder();
    encoder.CopyBufferToBuffer(buffer, 0, staging, 0, bytes);
    const CommandBuffer commands = encoder.Finish();
    gpu->queue.Submit(1, &commands);
    MapAsyncStatus result = MapAsyncStatus::Error;
    gpu->instance.WaitAny(
        staging.MapAsync(MapMode::Read, 0, bytes, MODE, [&](auto given, StringView) { result = given; }),
        UINT64_MAX);
    if (result != MapAsyncStatus::Success) {
        return {};
    }
    const auto *       values = static_cast<const float *>(staging.GetConstMappedRange(0, bytes));
    std::vector<float> copy(values, values + count);
    staging.Unmap();
    return copy;
}

ComputePipeline make_pipeline(const char * code) {
    ShaderSourceWGSL source;
    source.code = code;
    ShaderModuleDescriptor module;
    module.nextInChain = &source;
    ConstantEntry scale;
    scale.key   = "scale";
    scale.value = 2;
    ComputePipelineDescriptor descriptor;
    descriptor.label                 = "test";
    descriptor.compute.module        = gpu->device.CreateShaderModule(&module);
    descriptor.compute.entryPoint    = "main";
    descriptor.compute.constants     = &scale;
    descriptor.compute.constantCount = 1;
    return gpu->device.CreateComputePipeline(&descriptor);
}

constexpr const char * ADD = R"(
    override scale: f32;
    @group(0) @binding(0) var<storage, read> a: array<f32>;
    @group(0) @binding(1) var<storage, read> b: array<f32>;
    @group(0) @binding(2) var<storage, read_write> sum: array<f32>;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if (id.x < arrayLength(&sum)) { sum[id.x] = scale * a[id.x] + b[id.x]; }
    })";

void dispatch(const ComputePipeline & pipeline, const std::vector<Buffer> & buffers, uint32_t groups) {
    std::vector<BindGroupEntry> entries;
    for (const Buffer & buffer : buffers) {
        entries.push_back({static_cast<uint32_t>(entries.size()), buffer, 0, buffer.GetSize()});
    }
    BindGroupDescriptor descriptor;
    descriptor.layout                = pipeline.GetBindGroupLayout(0);
    descriptor.entryCount            = entries.size();
    descriptor.entries               = entries.data();
    const BindGroup          group   = gpu->device.CreateBindGroup(&descriptor);
    const CommandEncoder     encoder = gpu->device.CreateCommandEncoder();
    const ComputePassEncoder pass    = encoder.BeginComputePass();
    pass.SetPipeline(pipeline);
    pass.SetBindGroup(0, group);
    pass.DispatchWorkgroups(groups);
    pass.End();
    const CommandBuffer commands = encoder.Finish();
    gpu->queue.Submit(1, &commands);
}

} // namespace

// Has to run before all others.
EXPORTED const char * hr_test_device() {
    gpu = new Gpu;
    gpu->instance.WaitAny(
        gpu->instance.RequestAdapter(
            nullptr, MODE, [](auto, Adapter adapter, StringView) { gpu->adapter = std::move(adapter); }),
        UINT64_MAX);
    if (gpu->adapter == nullptr) {
        return failed("there is no adapter");
    }
    if (!gpu->adapter.HasFeature(FeatureName::ShaderF16)) {
        return failed("the adapter lacks shader-f16");
    }
    Limits limits;
    gpu->adapter.GetLimits(&limits);
    if (limits.maxStorageBufferBindingSize < 1 << 20 || limits.minStorageBufferOffsetAlignment == 0) {
        return failed("the limits are not those of an adapter");
    }
    AdapterInfo info;
    gpu->adapter.GetInfo(&info);
    if (info.vendor.text.empty()) {
        return failed("the adapter has no vendor");
    }
    const std::array<FeatureName, 1> features{FeatureName::ShaderF16};
    DeviceDescriptor                 descriptor;
    descriptor.requiredLimits       = &limits;
    descriptor.requiredFeatures     = features.data();
    descriptor.requiredFeatureCount = features.size();
    descriptor.SetDeviceLostCallback(MODE, [](const Device &, auto, StringView) { gpu->lost = true; });
    descriptor.SetUncapturedErrorCallback(
        [](const Device &, auto, StringView message) { gpu->error = std::string(message); });
    gpu->instance.WaitAny(
        gpu->adapter.RequestDevice(&descriptor, MODE,
                                   [](auto, Device device, StringView) { gpu->device = std::move(device); }),
        UINT64_MAX);
    if (gpu->device == nullptr) {
        return failed("there is no device");
    }
    gpu->queue = gpu->device.GetQueue();
    return nullptr;
}

EXPORTED const char * hr_test_vector_add() {
    constexpr size_t   count = 1000;
    std::vector<float> a(count);
    std::vector<float> b(count, 0.5F);
    std::iota(a.begin(), a.end(), 0.0F);
    const std::vector<Buffer> buffers{storage(4 * count), storage(4 * count), storage(4 * count)};
    gpu->queue.WriteBuffer(buffers[0], 0, a.data(), 4 * count);
    gpu->queue.WriteBuffer(buffers[1], 0, b.data(), 4 * count);
    dispatch(make_pipeline(ADD), buffers, (count + 63) / 64);
    const std::vector<float> sum = read(buffers[2], count);
    for (size_t i = 0; i < count; i++) {
        if (sum.size() != count || sum[i] != 2 * a[i] + b[i]) {
            return failed("element " + std::to_string(i) + " of the sum is wrong");
        }
    }
    return gpu->error.empty() ? nullptr : failed(gpu->error);
}

EXPORTED const char * hr_test_readback_in_parts() {
    const std::vector<float> written{1, 2, 3, 4, 5, 6, 7, 8};
    const Buffer             buffer = storage(4 * written.size());
    gpu->queue.WriteBuffer(buffer, 0, written.data(), 16);
    gpu->queue.WriteBuffer(buffer, 16, written.data() + 4, 16);
    return read(buffer, written.size()) == written ? nullptr : failed("other bytes came back");
}

// What no adapter has: the answer is null, and the next buffer is fine.
EXPORTED const char * hr_test_out_of_memory() {
    Limits limits;
    gpu->adapter.GetLimits(&limits);
    if (storage(limits.maxBufferSize + 4) != nullptr) {
        return failed("a buffer above the limit was made");
    }
    const auto fault = headrace::webgpu::take_fault();
    if (!fault || fault->kind != headrace::webgpu::FaultKind::out_of_memory) {
        return failed("it was not noted as shortage of memory");
    }
    if (!gpu->error.empty()) {
        return failed("it was also told as an error: " + gpu->error);
    }
    return storage(4096) != nullptr ? nullptr : failed("no buffer can be made any more");
}

EXPORTED const char * hr_test_validation_error() {
    const Buffer small = storage(16);
    gpu->queue.WriteBuffer(small, 0, std::vector<float>(8).data(), 32); // past its end
    dispatch(make_pipeline(ADD), {small, small, storage(16)}, 1);
    wait_for_queue();
    if (gpu->error.empty()) {
        return failed("nobody told of the error");
    }
    gpu->error.clear();
    const auto fault = headrace::webgpu::take_fault();
    return fault && fault->kind == headrace::webgpu::FaultKind::failed ? nullptr : failed("it was not noted");
}

EXPORTED const char * hr_test_shader_error() {
    dispatch(make_pipeline("this is no shader"), {storage(16)}, 1);
    wait_for_queue();
    read(storage(16), 4); // what follows from the error has been told by then, too
    headrace::webgpu::take_fault();
    return std::exchange(gpu->error, "").empty() ? failed("nobody told of the error") : nullptr;
}

// 100,000 dispatches, with what each needs; the caller counts the handles before and after.
EXPORTED const char * hr_test_many_objects() {
    const ComputePipeline     pipeline = make_pipeline(ADD);
    const std::vector<Buffer> buffers{storage(256), storage(256), storage(256)};
    for (int batch = 0; batch < 1'000; batch++) {
        for (int i = 0; i < 100; i++) {
            dispatch(pipeline, buffers, 1);
        }
        if (!wait_for_queue()) {
            return failed("the queue does not go on after batch " + std::to_string(batch) + fault_text());
        }
        const Buffer another = storage(64);
        another.Destroy();
    }
    return gpu->error.empty() ? nullptr : failed(gpu->error);
}

// A bind group is found again by what it binds, never by handles that have passed to other buffers.
EXPORTED const char * hr_test_kept_bind_groups() {
    const ComputePipeline pipeline = make_pipeline(ADD);
    for (int i = 0; i < 50; i++) {
        const std::vector<Buffer> buffers{storage(16), storage(16), storage(16)};
        const std::vector<float>  values(4, static_cast<float>(i));
        gpu->queue.WriteBuffer(buffers[0], 0, values.data(), 16);
        dispatch(pipeline, buffers, 1);
        if (read(buffers[2], 4) != std::vector<float>(4, static_cast<float>(2 * i))) {
            return failed("round " + std::to_string(i) + " computed with the buffers of another");
        }
        if (i % 2 == 0) {
            buffers[0].Destroy();
        }
    }
    return gpu->error.empty() ? nullptr : failed(gpu->error);
}

EXPORTED const char * hr_test_idle_queue_needs_no_wait() {
    wait_for_queue();
    const double before = headrace::webgpu::counters().waits;
    for (int i = 0; i < 100; i++) {
        if (!wait_for_queue()) {
            return failed("waiting for an idle queue failed" + fault_text());
        }
    }
    return headrace::webgpu::counters().waits == before ? nullptr : failed("an idle queue was waited for");
}

// The last of all: the caller destroys the device before it calls.
EXPORTED const char * hr_test_device_lost() {
    dispatch(make_pipeline(ADD), {storage(16), storage(16), storage(16)}, 1);
    if (wait_for_queue()) {
        return failed("a lost device did its work");
    }
    const auto fault = headrace::webgpu::take_fault();
    if (!gpu->lost || !fault || fault->kind != headrace::webgpu::FaultKind::lost) {
        return failed("nobody told of the loss");
    }
    return wait_for_queue() ? failed("the device came back") : nullptr;
}
