// WebGPU's C++ interface on the browser's functions: see include/webgpu/webgpu_cpp.h.
//
// Counterpart: browser_gpu.h. Not a wrapper that validates: the browser does, and tells by faults.
#include "webgpu/browser_gpu.h"
#include "webgpu/faults.h"

#include <webgpu/webgpu_cpp.h>

#include <algorithm>
#include <array>
#include <unordered_map>

namespace {

using headrace::webgpu::Counters;
using headrace::webgpu::Fault;
using headrace::webgpu::FaultKind;

constexpr size_t TEXT = 4096; // of a message of the browser

// A program has one device; who hears of its faults is told here.
struct Listeners {
    wgpu::DeviceDescriptor::LostCallback  lost;
    wgpu::DeviceDescriptor::ErrorCallback error;
};

// Work is done in the order in which it is submitted; what is done, the last wait told.
uint64_t submitted = 0;
uint64_t done      = 0;

constexpr size_t MOST_UNAWAITED = 64 << 20;
size_t           unawaited      = 0; // bytes written since the last wait for all of them

// Bind groups are kept, because every token needs those of the token before: what a dispatch binds changes only with
// the graph. It is not only the time. A browser frees what nobody uses when its garbage collector runs, and that does
// not know how much lies behind a bind group: after 65,000 of them, made and forgotten, the GPU process of Chromium 156
// was gone. A kept one holds its layout and buffers, so that no other object gets their handles.
struct KeptBindGroup {
    wgpu::BindGroup           group;
    wgpu::BindGroupLayout     layout;
    std::vector<wgpu::Buffer> buffers;
};

constexpr size_t MOST_BIND_GROUPS = 8192;

std::unordered_map<std::string, KeptBindGroup> bind_groups;

std::string key_of(const wgpu::BindGroupDescriptor & descriptor) {
    std::vector<uint64_t> parts{static_cast<uint64_t>(descriptor.layout.id())};
    for (size_t i = 0; i < descriptor.entryCount; i++) {
        const wgpu::BindGroupEntry & entry = descriptor.entries[i];
        parts.insert(parts.end(),
                     {entry.binding, static_cast<uint64_t>(entry.buffer.id()), entry.offset, entry.size});
    }
    return {reinterpret_cast<const char *>(parts.data()), parts.size() * sizeof(uint64_t)};
}

Listeners            listeners;
std::optional<Fault> noted;
Counters             counted;

void note(FaultKind kind, const std::string & message) {
    if (!noted) {
        noted = Fault{kind, message};
    }
}

// Tells of everything that went wrong meanwhile. The listeners may throw; then the rest is told next time.
// Returns whether the device is lost.
bool tell_faults() {
    std::array<char, TEXT> message{};
    bool                   lost = false;
    while (const int32_t kind = hr_gpu_take_fault(message.data(), message.size())) {
        const std::string text = message.data();
        switch (kind) {
            case hr_gpu_lost:
            case hr_gpu_destroyed:
                lost = true;
                note(FaultKind::lost, text);
                if (listeners.lost) {
                    listeners.lost(wgpu::Device(),
                                   kind == hr_gpu_destroyed ? wgpu::DeviceLostReason::Destroyed
                                                            : wgpu::DeviceLostReason::Unknown,
                                   text);
                }
                break;
            case hr_gpu_out_of_memory:
                note(FaultKind::out_of_memory, text);
                if (listeners.error) {
                    listeners.error(wgpu::Device(), wgpu::ErrorType::OutOfMemory, text);
                }
                break;
            default:
                note(FaultKind::failed, text);
                if (listeners.error) {
                    listeners.error(wgpu::Device(),
                                    kind == hr_gpu_validation ? wgpu::ErrorType::Validation
                                                              : wgpu::ErrorType::Internal,
                                    text);
                }
        }
    }
    return lost;
}

struct Result {
    bool        succeeded = false;
    int32_t     value     = 0;
    std::string reason;
};

Result result_of(const wgpu::Object & future) {
    std::array<char, TEXT> reason{};
    Result                 result;
    result.succeeded = hr_gpu_future_result(future.id(), &result.value, reason.data(), reason.size()) != 0;
    result.reason    = reason.data();
    return result;
}

const char * name_of(wgpu::FeatureName feature) {
    switch (feature) {
        case wgpu::FeatureName::ShaderF16: return "shader-f16";
        case wgpu::FeatureName::Subgroups: return "subgroups";
    }
    return "";
}

// Texts reach the browser as C strings.
std::string zero_ended(wgpu::StringView text) {
    return std::string(text.text);
}

} // namespace

namespace headrace::webgpu {

std::optional<Fault> take_fault() {
    return std::exchange(noted, std::nullopt);
}

const Counters & counters() {
    return counted;
}

} // namespace headrace::webgpu

namespace wgpu {

Object::Object(int32_t handle) {
    if (handle == 0) {
        return;
    }
    handle_ = std::shared_ptr<const int32_t>(new int32_t(handle), [](const int32_t * held) {
        hr_gpu_release(*held);
        delete held;
    });
}

// --- instance and adapter --------------------------------------------------------------------------------------------

Instance CreateInstance(const InstanceDescriptor *) {
    return Instance(true);
}

bool Instance::HasWGSLLanguageFeature(WGSLLanguageFeatureName) const {
    return hr_gpu_has_language_feature("packed_4x8_integer_dot_product") != 0;
}

Future Instance::RequestAdapter(const RequestAdapterOptions *, CallbackMode, AdapterCallback callback) const {
    const Object future(hr_gpu_request_adapter());
    return {future, [future, callback = std::move(callback)] {
                const Result result = result_of(future);
                callback(result.succeeded ? RequestAdapterStatus::Success : RequestAdapterStatus::Unavailable,
                         Adapter(result.value), result.reason);
            }};
}

WaitStatus Instance::WaitAny(const Future & future, uint64_t timeout_ns) const {
    // A device that hangs is reset by the browser. One that is only slow, as one in software, needs more patience
    // than ggml has, which gives up after 30 s. Nothing is waited for without end: a load must come to one.
    constexpr double patience   = 10;
    constexpr double longest_ms = 300'000;
    const double     timeout_ms = std::min(patience * static_cast<double>(timeout_ns) / 1e6, longest_ms);
    if (!future.handle) {
        counted.spared_waits++;
        future.settled();
        return WaitStatus::Success;
    }
    counted.waits++;
    const int32_t status = hr_gpu_wait(future.handle.id(), timeout_ms);
    const bool    lost   = tell_faults();
    if (lost || status == 3) {
        note(FaultKind::lost, "the GPU device is lost");
        return WaitStatus::Error;
    }
    if (status == 2) {
        note(FaultKind::lost, "the GPU did not answer in time");
        return WaitStatus::TimedOut;
    }
    if (status != 1) {
        note(FaultKind::failed, "this call cannot wait for the GPU");
        return WaitStatus::Error;
    }
    future.settled();
    return WaitStatus::Success;
}

bool Adapter::HasFeature(FeatureName feature) const {
    return hr_gpu_has_feature(id(), name_of(feature)) != 0;
}

void Adapter::GetLimits(Limits * limits) const {
    // ggml counts in 32 bits here: 4 GiB would be 0, and the sum of two buffers just below it a small number.
    static constexpr double most = 0x7FFFFFFC;
    const auto read = [this](const char * name) { return std::clamp(hr_gpu_limit(id(), name), 0.0, most); };
#define X(type, name) limits->name = static_cast<type>(read(#name));
    HR_GPU_LIMITS(X)
#undef X
}

void Adapter::GetInfo(AdapterInfo * info) const {
    constexpr std::array<const char *, 4> fields{"vendor", "architecture", "device", "description"};
    info->owned.clear();
    for (const char * field : fields) {
        std::array<char, TEXT> text{};
        hr_gpu_info_text(id(), field, text.data(), text.size());
        info->owned.emplace_back(text.data());
    }
    info->vendor          = info->owned[0];
    info->architecture    = info->owned[1];
    info->device          = info->owned[2];
    info->description     = info->owned[3];
    info->subgroupMinSize = static_cast<uint32_t>(hr_gpu_info_number(id(), "subgroupMinSize"));
    info->subgroupMaxSize = static_cast<uint32_t>(hr_gpu_info_number(id(), "subgroupMaxSize"));
}

Future Adapter::RequestDevice(const DeviceDescriptor * descriptor, CallbackMode,
                              DeviceCallback           callback) const {
    for (size_t i = 0; i < descriptor->requiredFeatureCount; i++) {
        hr_gpu_require_feature(name_of(descriptor->requiredFeatures[i]));
    }
    if (descriptor->requiredLimits) {
#define X(type, name)                                                                                        \
    if (descriptor->requiredLimits->name > 0) {                                                              \
        hr_gpu_require_limit(#name, static_cast<double>(descriptor->requiredLimits->name));                  \
    }
        HR_GPU_LIMITS(X)
#undef X
    }
    listeners = {descriptor->lost, descriptor->error};
    const Object future(hr_gpu_request_device(id()));
    return {future, [future, callback = std::move(callback)] {
                const Result result = result_of(future);
                if (!result.succeeded) {
                    note(FaultKind::failed, "there is no GPU device to be had: " + result.reason);
                }
                callback(result.succeeded ? RequestDeviceStatus::Success : RequestDeviceStatus::Error,
                         Device(result.value), result.reason);
            }};
}

// --- device ----------------------------------------------------------------------------------------------------------

Buffer Device::CreateBuffer(const BufferDescriptor * descriptor) const {
    const std::string label = zero_ended(descriptor->label);
    const auto        size  = static_cast<double>(descriptor->size);
    const auto        usage = static_cast<int32_t>(descriptor->usage);
    Buffer            buffer;
    if (descriptor->size < Buffer::LARGE_BUFFER) {
        buffer = Buffer(hr_gpu_create_buffer(id(), size, usage, label.c_str()));
    } else {
        int32_t      handle = 0;
        const Object made(hr_gpu_create_large_buffer(id(), size, usage, label.c_str(), &handle));
        buffer            = Buffer(handle);
        bool       exists = false;
        const auto end    = Instance(true).WaitAny({made,
                                                    [&] {
                                                     const Result result = result_of(made);
                                                     exists              = result.succeeded;
                                                     if (!exists) {
                                                         note(FaultKind::out_of_memory, result.reason);
                                                     }
                                                    }},
                                                   UINT64_MAX);
        if (end != WaitStatus::Success || !exists) {
            return nullptr;
        }
    }
    buffer.state_       = std::make_shared<Buffer::State>();
    buffer.state_->size = descriptor->size;
    return buffer;
}

ShaderModule Device::CreateShaderModule(const ShaderModuleDescriptor * descriptor) const {
    return ShaderModule(hr_gpu_create_shader(id(), zero_ended(descriptor->nextInChain->code).c_str()));
}

ComputePipeline Device::CreateComputePipeline(const ComputePipelineDescriptor * descriptor) const {
    const ComputeState & compute = descriptor->compute;
    for (size_t i = 0; i < compute.constantCount; i++) {
        hr_gpu_set_constant(zero_ended(compute.constants[i].key).c_str(), compute.constants[i].value);
    }
    ComputePipeline pipeline(hr_gpu_create_pipeline(id(), compute.module.id(),
                                                    zero_ended(compute.entryPoint).c_str(),
                                                    zero_ended(descriptor->label).c_str()));
    pipeline.first_ = std::make_shared<BindGroupLayout>();
    return pipeline;
}

BindGroupLayout ComputePipeline::GetBindGroupLayout(uint32_t group) const {
    const auto ask = [&] {
        return BindGroupLayout(hr_gpu_bind_group_layout(id(), static_cast<int32_t>(group)));
    };
    if (group != 0 || !first_) {
        return ask();
    }
    if (!*first_) {
        *first_ = ask();
    }
    return *first_;
}

BindGroup Device::CreateBindGroup(const BindGroupDescriptor * descriptor) const {
    std::string key = key_of(*descriptor);
    if (const auto found = bind_groups.find(key); found != bind_groups.end()) {
        return found->second.group;
    }
    for (size_t i = 0; i < descriptor->entryCount; i++) {
        const BindGroupEntry & entry = descriptor->entries[i];
        hr_gpu_bind(static_cast<int32_t>(entry.binding), entry.buffer.id(), static_cast<double>(entry.offset),
                    static_cast<double>(entry.size));
    }
    counted.bind_groups++;
    if (bind_groups.size() >= MOST_BIND_GROUPS) {
        bind_groups.clear();
    }
    KeptBindGroup kept;
    kept.group = BindGroup(
        hr_gpu_create_bind_group(id(), descriptor->layout.id(), zero_ended(descriptor->label).c_str()));
    kept.layout = descriptor->layout;
    for (size_t i = 0; i < descriptor->entryCount; i++) {
        kept.buffers.push_back(descriptor->entries[i].buffer);
    }
    return bind_groups.emplace(std::move(key), std::move(kept)).first->second.group;
}

CommandEncoder Device::CreateCommandEncoder() const {
    return CommandEncoder(hr_gpu_create_encoder(id()));
}

// --- buffers ---------------------------------------------------------------------------------------------------------

Future Buffer::MapAsync(MapMode, size_t offset, size_t size, CallbackMode, MapCallback callback) const {
    counted.maps++;
    const Object future(hr_gpu_map_for_reading(id(), static_cast<double>(offset), static_cast<double>(size)));
    return {future, [future, last = submitted, callback = std::move(callback)] {
                const Result result = result_of(future);
                done                = result.succeeded ? last : done;
                callback(result.succeeded ? MapAsyncStatus::Success : MapAsyncStatus::Error, result.reason);
            }};
}

const void * Buffer::GetConstMappedRange(size_t offset, size_t size) const {
    state_->mapped.resize(size == SIZE_MAX ? static_cast<size_t>(GetSize()) - offset : size);
    hr_gpu_read_mapped(id(), static_cast<double>(offset), state_->mapped.data(), state_->mapped.size());
    counted.read += static_cast<double>(state_->mapped.size());
    return state_->mapped.data();
}

void Buffer::Unmap() const {
    hr_gpu_unmap(id());
    state_->mapped = {};
}

void Buffer::Destroy() const {
    bind_groups.clear(); // they keep buffers alive
    hr_gpu_destroy_buffer(id());
}

// --- commands --------------------------------------------------------------------------------------------------------

ComputePassEncoder CommandEncoder::BeginComputePass() const {
    return ComputePassEncoder(hr_gpu_begin_pass(id()));
}

void CommandEncoder::CopyBufferToBuffer(const Buffer & from, uint64_t from_offset, const Buffer & to,
                                        uint64_t to_offset, uint64_t size) const {
    hr_gpu_copy(id(), from.id(), static_cast<double>(from_offset), to.id(), static_cast<double>(to_offset),
                static_cast<double>(size));
}

CommandBuffer CommandEncoder::Finish() const {
    return CommandBuffer(hr_gpu_finish(id()));
}

void ComputePassEncoder::SetPipeline(const ComputePipeline & pipeline) const {
    hr_gpu_set_pipeline(id(), pipeline.id());
}

void ComputePassEncoder::SetBindGroup(uint32_t group, const BindGroup & bind_group) const {
    hr_gpu_set_bind_group(id(), static_cast<int32_t>(group), bind_group.id());
}

void ComputePassEncoder::DispatchWorkgroups(uint32_t x, uint32_t y, uint32_t z) const {
    counted.dispatches++;
    hr_gpu_dispatch(id(), static_cast<int32_t>(x), static_cast<int32_t>(y), static_cast<int32_t>(z));
}

void ComputePassEncoder::End() const {
    hr_gpu_end_pass(id());
}

void Queue::Submit(size_t count, const CommandBuffer * commands) const {
    counted.submits++;
    submitted++;
    for (size_t i = 0; i < count; i++) {
        hr_gpu_submit(id(), commands[i].id());
    }
}

void Queue::WriteBuffer(const Buffer & buffer, uint64_t offset, const void * data, size_t size) const {
    counted.writes++;
    counted.written += static_cast<double>(size);
    hr_gpu_write(id(), buffer.id(), static_cast<double>(offset), data, size);
    // What is written the browser keeps until the GPU takes it: a model whole, if nobody waits.
    unawaited += size;
    if (unawaited > MOST_UNAWAITED) {
        unawaited = 0;
        Instance(true).WaitAny({Object(hr_gpu_work_done(id())), [] {}}, UINT64_MAX);
    }
}

// ggml asks often, before each input that it writes. Of an idle queue the answer is known, without a round trip.
Future Queue::OnSubmittedWorkDone(CallbackMode, WorkDoneCallback callback) const {
    if (done == submitted) {
        return {{}, [callback = std::move(callback)] { callback(QueueWorkDoneStatus::Success, {}); }};
    }
    const Object future(hr_gpu_work_done(id()));
    return {future, [future, last = submitted, callback = std::move(callback)] {
                const Result result = result_of(future);
                done                = result.succeeded ? last : done;
                callback(result.succeeded ? QueueWorkDoneStatus::Success : QueueWorkDoneStatus::Error,
                         result.reason);
            }};
}

} // namespace wgpu
