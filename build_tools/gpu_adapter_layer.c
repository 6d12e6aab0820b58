/* A Vulkan layer that gives a processor's Vulkan driver the numbers by which Chromium knows SwiftShader.
 *
 * Counterpart: gpu_adapter.py, which compiles it and writes its manifest. Chromium offers a software driver to
 * pages only if it is SwiftShader, which it knows by these numbers. Nothing else of the driver is changed: what
 * a page sees and computes is Mesa's. Not part of what Headrace ships.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <vulkan/vulkan_core.h>

#include <vulkan/vk_layer.h>

enum { SWIFTSHADER_VENDOR = 0x1AE0, SWIFTSHADER_DEVICE = 0xC0DE };

/* What the loader calls "the rest of the chain", for one VkInstance and its physical devices. */
typedef struct Chain {
    const void *                       key;
    PFN_vkGetInstanceProcAddr          next;
    PFN_vkDestroyInstance              destroy;
    PFN_vkGetPhysicalDeviceProperties  properties;
    PFN_vkGetPhysicalDeviceProperties2 properties2;
    struct Chain *                     older;
} Chain;

static Chain *         chains;
static pthread_mutex_t chains_lock = PTHREAD_MUTEX_INITIALIZER;

/* The loader puts the same pointer first into an instance and into all its physical devices. */
static const void * key_of(const void * handle) {
    return *(const void * const *)handle;
}

static Chain * chain_of(const void * handle) {
    pthread_mutex_lock(&chains_lock);
    Chain * chain = chains;
    while (chain && chain->key != key_of(handle))
        chain = chain->older;
    pthread_mutex_unlock(&chains_lock);
    return chain;
}

static void disguise(VkPhysicalDeviceProperties * properties) {
    if (properties->deviceType != VK_PHYSICAL_DEVICE_TYPE_CPU)
        return;
    properties->vendorID = SWIFTSHADER_VENDOR;
    properties->deviceID = SWIFTSHADER_DEVICE;
}

static VKAPI_ATTR void VKAPI_CALL get_properties(VkPhysicalDevice device, VkPhysicalDeviceProperties * out) {
    chain_of(device)->properties(device, out);
    disguise(out);
}

static VKAPI_ATTR void VKAPI_CALL get_properties2(VkPhysicalDevice              device,
                                                  VkPhysicalDeviceProperties2 * out) {
    chain_of(device)->properties2(device, out);
    disguise(&out->properties);
}

static VKAPI_ATTR void VKAPI_CALL destroy_instance(VkInstance                    instance,
                                                   const VkAllocationCallbacks * allocator) {
    if (!instance)
        return;
    pthread_mutex_lock(&chains_lock);
    Chain ** at = &chains;
    while ((*at)->key != key_of(instance))
        at = &(*at)->older;
    Chain * chain = *at;
    *at           = chain->older;
    pthread_mutex_unlock(&chains_lock);
    chain->destroy(instance, allocator);
    free(chain);
}

/* The loader hangs a list of the layers still to be called on the request; each layer takes its entry off. */
static VkLayerInstanceLink * take_link(const VkInstanceCreateInfo * request) {
    for (VkLayerInstanceCreateInfo * entry = (VkLayerInstanceCreateInfo *)request->pNext; entry;
         entry                             = (VkLayerInstanceCreateInfo *)entry->pNext) {
        if (entry->sType != VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO)
            continue;
        if (entry->function != VK_LAYER_LINK_INFO)
            continue;
        VkLayerInstanceLink * link = entry->u.pLayerInfo;
        entry->u.pLayerInfo        = link->pNext;
        return link;
    }
    return NULL;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *  request,
                                                      const VkAllocationCallbacks * allocator,
                                                      VkInstance *                  instance) {
    VkLayerInstanceLink * link  = take_link(request);
    Chain *               chain = calloc(1, sizeof *chain);
    if (!link || !chain) {
        free(chain);
        return VK_ERROR_INITIALIZATION_FAILED;
    }
    PFN_vkGetInstanceProcAddr next   = link->pfnNextGetInstanceProcAddr;
    PFN_vkCreateInstance      create = (PFN_vkCreateInstance)next(NULL, "vkCreateInstance");
    VkResult                  result = create(request, allocator, instance);
    if (result != VK_SUCCESS) {
        free(chain);
        return result;
    }
    chain->key        = key_of(*instance);
    chain->next       = next;
    chain->destroy    = (PFN_vkDestroyInstance)next(*instance, "vkDestroyInstance");
    chain->properties = (PFN_vkGetPhysicalDeviceProperties)next(*instance, "vkGetPhysicalDeviceProperties");
    chain->properties2 =
        (PFN_vkGetPhysicalDeviceProperties2)next(*instance, "vkGetPhysicalDeviceProperties2");
    if (!chain->properties2) {
        chain->properties2 =
            (PFN_vkGetPhysicalDeviceProperties2)next(*instance, "vkGetPhysicalDeviceProperties2KHR");
    }
    pthread_mutex_lock(&chains_lock);
    chain->older = chains;
    chains       = chain;
    pthread_mutex_unlock(&chains_lock);
    return VK_SUCCESS;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance_function(VkInstance   instance,
                                                                      const char * name) {
    static const struct {
        const char *       name;
        PFN_vkVoidFunction function;
    } ours[] = {
        {"vkGetInstanceProcAddr", (PFN_vkVoidFunction)get_instance_function},
        {"vkCreateInstance", (PFN_vkVoidFunction)create_instance},
        {"vkDestroyInstance", (PFN_vkVoidFunction)destroy_instance},
        {"vkGetPhysicalDeviceProperties", (PFN_vkVoidFunction)get_properties},
        {"vkGetPhysicalDeviceProperties2", (PFN_vkVoidFunction)get_properties2},
        {"vkGetPhysicalDeviceProperties2KHR", (PFN_vkVoidFunction)get_properties2},
    };
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        if (strcmp(name, ours[i].name) == 0)
            return ours[i].function;
    }
    Chain * chain = instance ? chain_of(instance) : NULL;
    return chain ? chain->next(instance, name) : NULL;
}

VK_LAYER_EXPORT VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface * negotiation) {
    negotiation->loaderLayerInterfaceVersion  = CURRENT_LOADER_LAYER_INTERFACE_VERSION;
    negotiation->pfnGetInstanceProcAddr       = get_instance_function;
    negotiation->pfnGetDeviceProcAddr         = NULL;
    negotiation->pfnGetPhysicalDeviceProcAddr = NULL;
    return VK_SUCCESS;
}
