/* A Vulkan layer that gives a processor's Vulkan driver the numbers by which Chromium knows SwiftShader, and a
 * memory of a limited size.
 *
 * Counterpart: gpu_adapter.py, which compiles it and writes its manifest. Chromium offers a software driver to
 * pages only if it is SwiftShader, which it knows by these numbers. A software driver's memory is the
 * machine's, which no test can exhaust: with HEADRACE_GPU_MEMORY_BYTES set it ends where a GPU's does. Nothing
 * else of the driver is changed: what a page sees and computes is Mesa's. Not part of what Headrace ships.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <vulkan/vulkan_core.h>

#include <vulkan/vk_layer.h>

enum { SWIFTSHADER_VENDOR = 0x1AE0, SWIFTSHADER_DEVICE = 0xC0DE };

/* The rest of the chain of layers, as the loader calls it, for one VkInstance and its physical devices. */
typedef struct Instance {
    const void *                       key;
    VkInstance                         handle;
    PFN_vkGetInstanceProcAddr          next;
    PFN_vkDestroyInstance              destroy;
    PFN_vkGetPhysicalDeviceProperties  properties;
    PFN_vkGetPhysicalDeviceProperties2 properties2;
    struct Instance *                  older;
} Instance;

/* The same for one VkDevice and its queues. */
typedef struct Device {
    const void *            key;
    PFN_vkGetDeviceProcAddr next;
    PFN_vkDestroyDevice     destroy;
    PFN_vkAllocateMemory    allocate;
    PFN_vkFreeMemory        free;
    struct Device *         older;
} Device;

typedef struct Allocation {
    VkDeviceMemory      memory;
    VkDeviceSize        bytes;
    struct Allocation * older;
} Allocation;

static Instance *      instances;
static Device *        devices;
static Allocation *    allocations; /* of all devices: they share one memory */
static VkDeviceSize    allocated_bytes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all four */

/* The loader puts the same pointer first into an instance and all its physical devices, and another one into a
 * device and its queues. */
static const void * key_of(const void * handle) {
    return *(const void * const *)handle;
}

static Instance * find_instance(const void * handle) {
    pthread_mutex_lock(&lock);
    Instance * found = instances;
    while (found && found->key != key_of(handle))
        found = found->older;
    pthread_mutex_unlock(&lock);
    return found;
}

static Device * find_device(const void * handle) {
    pthread_mutex_lock(&lock);
    Device * found = devices;
    while (found && found->key != key_of(handle))
        found = found->older;
    pthread_mutex_unlock(&lock);
    return found;
}

/* ---- the numbers ---- */

static void disguise(VkPhysicalDeviceProperties * properties) {
    if (properties->deviceType != VK_PHYSICAL_DEVICE_TYPE_CPU)
        return;
    properties->vendorID = SWIFTSHADER_VENDOR;
    properties->deviceID = SWIFTSHADER_DEVICE;
}

static VKAPI_ATTR void VKAPI_CALL get_properties(VkPhysicalDevice device, VkPhysicalDeviceProperties * out) {
    find_instance(device)->properties(device, out);
    disguise(out);
}

static VKAPI_ATTR void VKAPI_CALL get_properties2(VkPhysicalDevice              device,
                                                  VkPhysicalDeviceProperties2 * out) {
    find_instance(device)->properties2(device, out);
    disguise(&out->properties);
}

/* ---- the memory ---- */

/* 0: no limit but the machine's. */
static VkDeviceSize memory_limit(void) {
    const char * limit = getenv("HEADRACE_GPU_MEMORY_BYTES");
    return limit ? strtoull(limit, NULL, 10) : 0;
}

static VKAPI_ATTR VkResult VKAPI_CALL allocate_memory(VkDevice handle, const VkMemoryAllocateInfo * request,
                                                      const VkAllocationCallbacks * allocator,
                                                      VkDeviceMemory *              memory) {
    const Device *     device = find_device(handle);
    const VkDeviceSize limit  = memory_limit();
    if (limit == 0)
        return device->allocate(handle, request, allocator, memory);

    Allocation * record = malloc(sizeof *record);
    if (!record)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    pthread_mutex_lock(&lock);
    VkResult result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    if (request->allocationSize <= limit && allocated_bytes <= limit - request->allocationSize)
        result = device->allocate(handle, request, allocator, memory);
    if (result == VK_SUCCESS) {
        *record     = (Allocation){*memory, request->allocationSize, allocations};
        allocations = record;
        allocated_bytes += record->bytes;
    }
    pthread_mutex_unlock(&lock);
    if (result != VK_SUCCESS)
        free(record);
    return result;
}

static VKAPI_ATTR void VKAPI_CALL free_memory(VkDevice handle, VkDeviceMemory memory,
                                              const VkAllocationCallbacks * allocator) {
    const Device * device = find_device(handle);
    pthread_mutex_lock(&lock);
    Allocation ** at = &allocations;
    while (*at && (*at)->memory != memory)
        at = &(*at)->older;
    Allocation * record = *at;
    if (record) {
        *at = record->older;
        allocated_bytes -= record->bytes;
    }
    pthread_mutex_unlock(&lock);
    device->free(handle, memory, allocator);
    free(record);
}

/* ---- joining and leaving the chain ---- */

/* The loader hangs a list of the layers still to be called on a request; each layer takes its entry off. */
static VkLayerInstanceLink * take_instance_link(const VkInstanceCreateInfo * request) {
    VkLayerInstanceCreateInfo * at = (VkLayerInstanceCreateInfo *)request->pNext;
    while (at && !(at->sType == VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO &&
                   at->function == VK_LAYER_LINK_INFO))
        at = (VkLayerInstanceCreateInfo *)at->pNext;
    if (!at)
        return NULL;
    VkLayerInstanceLink * link = at->u.pLayerInfo;
    at->u.pLayerInfo           = link->pNext;
    return link;
}

static VkLayerDeviceLink * take_device_link(const VkDeviceCreateInfo * request) {
    VkLayerDeviceCreateInfo * at = (VkLayerDeviceCreateInfo *)request->pNext;
    while (at &&
           !(at->sType == VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO && at->function == VK_LAYER_LINK_INFO))
        at = (VkLayerDeviceCreateInfo *)at->pNext;
    if (!at)
        return NULL;
    VkLayerDeviceLink * link = at->u.pLayerInfo;
    at->u.pLayerInfo         = link->pNext;
    return link;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *  request,
                                                      const VkAllocationCallbacks * allocator,
                                                      VkInstance *                  handle) {
    const VkLayerInstanceLink * link     = take_instance_link(request);
    Instance *                  instance = calloc(1, sizeof *instance);
    if (!link || !instance) {
        free(instance);
        return VK_ERROR_INITIALIZATION_FAILED;
    }
    const PFN_vkGetInstanceProcAddr next   = link->pfnNextGetInstanceProcAddr;
    const PFN_vkCreateInstance      create = (PFN_vkCreateInstance)next(NULL, "vkCreateInstance");
    const VkResult                  result = create(request, allocator, handle);
    if (result != VK_SUCCESS) {
        free(instance);
        return result;
    }
    instance->key        = key_of(*handle);
    instance->handle     = *handle;
    instance->next       = next;
    instance->destroy    = (PFN_vkDestroyInstance)next(*handle, "vkDestroyInstance");
    instance->properties = (PFN_vkGetPhysicalDeviceProperties)next(*handle, "vkGetPhysicalDeviceProperties");
    instance->properties2 =
        (PFN_vkGetPhysicalDeviceProperties2)next(*handle, "vkGetPhysicalDeviceProperties2");
    if (!instance->properties2) {
        instance->properties2 =
            (PFN_vkGetPhysicalDeviceProperties2)next(*handle, "vkGetPhysicalDeviceProperties2KHR");
    }
    pthread_mutex_lock(&lock);
    instance->older = instances;
    instances       = instance;
    pthread_mutex_unlock(&lock);
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_instance(VkInstance                    handle,
                                                   const VkAllocationCallbacks * allocator) {
    if (!handle)
        return;
    pthread_mutex_lock(&lock);
    Instance ** at = &instances;
    while ((*at)->key != key_of(handle))
        at = &(*at)->older;
    Instance * instance = *at;
    *at                 = instance->older;
    pthread_mutex_unlock(&lock);
    instance->destroy(handle, allocator);
    free(instance);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice              physical,
                                                    const VkDeviceCreateInfo *    request,
                                                    const VkAllocationCallbacks * allocator,
                                                    VkDevice *                    handle) {
    const VkLayerDeviceLink * link   = take_device_link(request);
    Device *                  device = calloc(1, sizeof *device);
    if (!link || !device) {
        free(device);
        return VK_ERROR_INITIALIZATION_FAILED;
    }
    const PFN_vkGetDeviceProcAddr next   = link->pfnNextGetDeviceProcAddr;
    const PFN_vkCreateDevice      create = (PFN_vkCreateDevice)link->pfnNextGetInstanceProcAddr(
        find_instance(physical)->handle, "vkCreateDevice");
    const VkResult result = create(physical, request, allocator, handle);
    if (result != VK_SUCCESS) {
        free(device);
        return result;
    }
    device->key      = key_of(*handle);
    device->next     = next;
    device->destroy  = (PFN_vkDestroyDevice)next(*handle, "vkDestroyDevice");
    device->allocate = (PFN_vkAllocateMemory)next(*handle, "vkAllocateMemory");
    device->free     = (PFN_vkFreeMemory)next(*handle, "vkFreeMemory");
    pthread_mutex_lock(&lock);
    device->older = devices;
    devices       = device;
    pthread_mutex_unlock(&lock);
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_device(VkDevice handle, const VkAllocationCallbacks * allocator) {
    if (!handle)
        return;
    pthread_mutex_lock(&lock);
    Device ** at = &devices;
    while ((*at)->key != key_of(handle))
        at = &(*at)->older;
    Device * device = *at;
    *at             = device->older;
    pthread_mutex_unlock(&lock);
    device->destroy(handle, allocator);
    free(device);
}

/* ---- what the loader asks for by name ---- */

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance_function(VkInstance handle, const char * name);
static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device_function(VkDevice handle, const char * name);

typedef struct {
    const char *       name;
    PFN_vkVoidFunction function;
} Entry;

static const Entry instance_entries[] = {
    {"vkGetInstanceProcAddr", (PFN_vkVoidFunction)get_instance_function},
    {"vkCreateInstance", (PFN_vkVoidFunction)create_instance},
    {"vkDestroyInstance", (PFN_vkVoidFunction)destroy_instance},
    {"vkCreateDevice", (PFN_vkVoidFunction)create_device},
    {"vkGetPhysicalDeviceProperties", (PFN_vkVoidFunction)get_properties},
    {"vkGetPhysicalDeviceProperties2", (PFN_vkVoidFunction)get_properties2},
    {"vkGetPhysicalDeviceProperties2KHR", (PFN_vkVoidFunction)get_properties2},
    {NULL, NULL},
};

static const Entry device_entries[] = {
    {"vkGetDeviceProcAddr", (PFN_vkVoidFunction)get_device_function},
    {"vkDestroyDevice", (PFN_vkVoidFunction)destroy_device},
    {"vkAllocateMemory", (PFN_vkVoidFunction)allocate_memory},
    {"vkFreeMemory", (PFN_vkVoidFunction)free_memory},
    {NULL, NULL},
};

static PFN_vkVoidFunction ours(const Entry * entries, const char * name) {
    while (entries->name && strcmp(entries->name, name) != 0)
        entries++;
    return entries->function;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device_function(VkDevice handle, const char * name) {
    const PFN_vkVoidFunction function = ours(device_entries, name);
    return function ? function : find_device(handle)->next(handle, name);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance_function(VkInstance handle, const char * name) {
    PFN_vkVoidFunction function = ours(instance_entries, name);
    if (!function)
        function = ours(device_entries, name);
    if (function)
        return function;
    const Instance * instance = handle ? find_instance(handle) : NULL;
    return instance ? instance->next(handle, name) : NULL;
}

VK_LAYER_EXPORT VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface * negotiation) {
    negotiation->loaderLayerInterfaceVersion  = CURRENT_LOADER_LAYER_INTERFACE_VERSION;
    negotiation->pfnGetInstanceProcAddr       = get_instance_function;
    negotiation->pfnGetDeviceProcAddr         = get_device_function;
    negotiation->pfnGetPhysicalDeviceProcAddr = NULL;
    return VK_SUCCESS;
}
