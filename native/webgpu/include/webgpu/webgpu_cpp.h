// WebGPU's C++ interface for the browser, as far as computing needs it: what ggml-webgpu includes.
//
// Counterpart: webgpu_cpp.cpp, on the browser's functions of browser_gpu.h. Names and meanings are those of Dawn's
// header of the same name, whose generated code shows every call; behaviour is that of https://www.w3.org/TR/webgpu/.
// Not the whole of WebGPU: no rendering, no textures, no queries. Where EMDAWNWEBGPU_DIR names the official port, its
// header is found in place of this one.
//
// What differs: callbacks are only called by WaitAny, on the thread that waits, so that an exception may pass through
// them; a buffer of LARGE_BUFFER bytes or more is null when there was no memory for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace wgpu {

// --- numbers and names -----------------------------------------------------------------------------------------------

// Values as in the specification, where it gives them: they reach the browser as they are.
enum class BufferUsage : uint32_t {
    None     = 0,
    MapRead  = 0x01,
    MapWrite = 0x02,
    CopySrc  = 0x04,
    CopyDst  = 0x08,
    Uniform  = 0x40,
    Storage  = 0x80,
};

constexpr BufferUsage operator|(BufferUsage a, BufferUsage b) {
    return static_cast<BufferUsage>(static_cast<uint32_t>(a) | static_cast<uint32_t>(b));
}

enum class MapMode : uint32_t { None = 0, Read = 1 };

enum class CallbackMode { WaitAnyOnly, AllowProcessEvents, AllowSpontaneous };
enum class WaitStatus { Success, TimedOut, Error };
enum class RequestAdapterStatus { Success, Unavailable, Error };
enum class RequestDeviceStatus { Success, Error };
enum class MapAsyncStatus { Success, Error, Aborted };
enum class QueueWorkDoneStatus { Success, Error };
enum class DeviceLostReason { Unknown, Destroyed };
enum class ErrorType { NoError, Validation, OutOfMemory, Internal, Unknown };
enum class InstanceFeatureName { TimedWaitAny };
enum class WGSLLanguageFeatureName { Packed4x8IntegerDotProduct };
enum class FeatureName { ShaderF16, Subgroups };

// Text that somebody else owns.
struct StringView {
    StringView() = default;
    StringView(std::nullptr_t) {}
    StringView(const char * given) : text(given ? given : "") {}
    StringView(std::string_view given) : text(given) {}
    StringView(const std::string & given) : text(given) {}

    operator std::string_view() const { return text; }

    std::string_view text;
};

// HR_GPU_LIMITS(X) with X(type, name): every limit that ggml-webgpu asks for or a device may be asked to have.
#define HR_GPU_LIMITS(X)                                                                                     \
    X(uint32_t, maxBindGroups)                                                                               \
    X(uint32_t, maxBindingsPerBindGroup)                                                                     \
    X(uint32_t, maxStorageBuffersPerShaderStage)                                                             \
    X(uint32_t, maxUniformBuffersPerShaderStage)                                                             \
    X(uint64_t, maxUniformBufferBindingSize)                                                                 \
    X(uint64_t, maxStorageBufferBindingSize)                                                                 \
    X(uint32_t, minUniformBufferOffsetAlignment)                                                             \
    X(uint32_t, minStorageBufferOffsetAlignment)                                                             \
    X(uint64_t, maxBufferSize)                                                                               \
    X(uint32_t, maxComputeWorkgroupStorageSize)                                                              \
    X(uint32_t, maxComputeInvocationsPerWorkgroup)                                                           \
    X(uint32_t, maxComputeWorkgroupSizeX)                                                                    \
    X(uint32_t, maxComputeWorkgroupSizeY)                                                                    \
    X(uint32_t, maxComputeWorkgroupSizeZ)                                                                    \
    X(uint32_t, maxComputeWorkgroupsPerDimension)

struct Limits {
#define X(type, name) type name = 0;
    HR_GPU_LIMITS(X)
#undef X
};

// Its texts live as long as it does.
struct AdapterInfo {
    AdapterInfo()                                = default;
    AdapterInfo(const AdapterInfo &)             = delete;
    AdapterInfo & operator=(const AdapterInfo &) = delete;

    StringView vendor;
    StringView architecture;
    StringView device;
    StringView description;
    uint32_t   vendorID        = 0; // browsers do not tell
    uint32_t   deviceID        = 0;
    uint32_t   subgroupMinSize = 0;
    uint32_t   subgroupMaxSize = 0;

    std::vector<std::string> owned;
};

// --- objects ---------------------------------------------------------------------------------------------------------

// A handle that is forgotten with its last copy.
class Object {
  public:
    Object() = default;
    Object(std::nullptr_t) {}
    explicit Object(int32_t handle);

    explicit operator bool() const { return id() != 0; }
    int32_t  id() const { return handle_ ? *handle_ : 0; }

    friend bool operator==(const Object & object, std::nullptr_t) { return object.id() == 0; }

  private:
    std::shared_ptr<const int32_t> handle_;
};

struct Future {
    Object                handle;
    std::function<void()> settled; // reads the result and calls the callback
};

struct BufferDescriptor {
    StringView  label;
    BufferUsage usage            = BufferUsage::None;
    uint64_t    size             = 0;
    bool        mappedAtCreation = false; // true is not provided for
};

class Buffer : public Object {
  public:
    using Object::Object;

    static constexpr uint64_t LARGE_BUFFER = 1 << 20; // from here on, memory may be short

    uint64_t GetSize() const { return state_ ? state_->size : 0; }

    using MapCallback = std::function<void(MapAsyncStatus, StringView)>;
    Future MapAsync(MapMode mode, size_t offset, size_t size, CallbackMode, MapCallback callback) const;

    // A copy of what was mapped, valid until Unmap.
    const void * GetConstMappedRange(size_t offset = 0, size_t size = SIZE_MAX) const;
    void         Unmap() const;
    void         Destroy() const;

  private:
    friend class Device;
    struct State {
        uint64_t             size = 0;
        std::vector<uint8_t> mapped;
    };
    std::shared_ptr<State> state_;
};

class ShaderModule : public Object {
  public:
    using Object::Object;
};

struct ChainedStruct {};

struct ShaderSourceWGSL : ChainedStruct {
    StringView code; // ends with a zero
};

// The source is its only extension here.
struct ShaderModuleDescriptor {
    const ShaderSourceWGSL * nextInChain = nullptr;
};

class BindGroupLayout : public Object {
  public:
    using Object::Object;
};

class PipelineLayout : public Object {
  public:
    using Object::Object;
};

struct ConstantEntry {
    StringView key;
    double     value = 0;
};

struct ComputeState {
    ShaderModule          module;
    StringView            entryPoint;
    size_t                constantCount = 0;
    const ConstantEntry * constants     = nullptr;
};

struct ComputePipelineDescriptor {
    StringView     label;
    PipelineLayout layout; // always null: the browser derives it
    ComputeState   compute;
};

class ComputePipeline : public Object {
  public:
    using Object::Object;

    BindGroupLayout GetBindGroupLayout(uint32_t group) const;

  private:
    friend class Device;
    std::shared_ptr<BindGroupLayout> first_; // of group 0, which every dispatch asks for
};

struct BindGroupEntry {
    uint32_t binding = 0;
    Buffer   buffer;
    uint64_t offset = 0;
    uint64_t size   = 0;
};

struct BindGroupDescriptor {
    StringView             label;
    BindGroupLayout        layout;
    size_t                 entryCount = 0;
    const BindGroupEntry * entries    = nullptr;
};

class BindGroup : public Object {
  public:
    using Object::Object;
};

class ComputePassEncoder : public Object {
  public:
    using Object::Object;

    void SetPipeline(const ComputePipeline & pipeline) const;
    void SetBindGroup(uint32_t group, const BindGroup & bind_group) const;
    void DispatchWorkgroups(uint32_t x, uint32_t y = 1, uint32_t z = 1) const;
    void End() const;
};

class CommandBuffer : public Object {
  public:
    using Object::Object;
};

class CommandEncoder : public Object {
  public:
    using Object::Object;

    ComputePassEncoder BeginComputePass() const;
    void CopyBufferToBuffer(const Buffer & from, uint64_t from_offset, const Buffer & to, uint64_t to_offset,
                            uint64_t size) const;
    CommandBuffer Finish() const;
};

// Goes by its device's handle.
class Queue : public Object {
  public:
    using Object::Object;

    void Submit(size_t count, const CommandBuffer * commands) const;
    void WriteBuffer(const Buffer & buffer, uint64_t offset, const void * data, size_t size) const;

    using WorkDoneCallback = std::function<void(QueueWorkDoneStatus, StringView)>;
    Future OnSubmittedWorkDone(CallbackMode, WorkDoneCallback callback) const;

  private:
    friend class Device;
    explicit Queue(const Object & device) : Object(device) {}
};

class Device : public Object {
  public:
    using Object::Object;

    // May wait, see LARGE_BUFFER.
    Buffer          CreateBuffer(const BufferDescriptor * descriptor) const;
    ShaderModule    CreateShaderModule(const ShaderModuleDescriptor * descriptor) const;
    ComputePipeline CreateComputePipeline(const ComputePipelineDescriptor * descriptor) const;
    BindGroup       CreateBindGroup(const BindGroupDescriptor * descriptor) const;
    CommandEncoder  CreateCommandEncoder() const;
    Queue           GetQueue() const { return Queue(*this); }
};

struct DeviceDescriptor {
    using LostCallback  = std::function<void(const Device &, DeviceLostReason, StringView)>;
    using ErrorCallback = std::function<void(const Device &, ErrorType, StringView)>;

    const Limits *      requiredLimits       = nullptr;
    size_t              requiredFeatureCount = 0;
    const FeatureName * requiredFeatures     = nullptr;
    LostCallback        lost;
    ErrorCallback       error;

    void SetDeviceLostCallback(CallbackMode, LostCallback callback) { lost = std::move(callback); }
    void SetUncapturedErrorCallback(ErrorCallback callback) { error = std::move(callback); }
};

class Adapter : public Object {
  public:
    using Object::Object;

    bool HasFeature(FeatureName feature) const;
    void GetLimits(Limits * limits) const;
    void GetInfo(AdapterInfo * info) const;

    using DeviceCallback = std::function<void(RequestDeviceStatus, Device, StringView)>;
    Future RequestDevice(const DeviceDescriptor * descriptor, CallbackMode, DeviceCallback callback) const;
};

struct RequestAdapterOptions {}; // which adapter is wanted, the page decides

struct InstanceDescriptor {
    size_t                      requiredFeatureCount = 0;
    const InstanceFeatureName * requiredFeatures     = nullptr;
};

// The browser has one; it needs no handle.
class Instance {
  public:
    Instance() = default;
    explicit Instance(bool exists) : exists_(exists) {}

    friend bool operator==(const Instance & instance, std::nullptr_t) { return !instance.exists_; }

    bool HasWGSLLanguageFeature(WGSLLanguageFeatureName feature) const;

    using AdapterCallback = std::function<void(RequestAdapterStatus, Adapter, StringView)>;
    Future RequestAdapter(const RequestAdapterOptions *, CallbackMode, AdapterCallback callback) const;

    // Suspends the caller's whole stack, for five minutes at most.
    WaitStatus WaitAny(const Future & future, uint64_t timeout_ns) const;

  private:
    bool exists_ = false;
};

Instance CreateInstance(const InstanceDescriptor *);

} // namespace wgpu
