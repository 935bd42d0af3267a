/* Devices, versions and peers of the stand-in HIP library. */
#include "standin.h"

#include <stdio.h>
#include <string.h>

/* hipDeviceProp_tR0600, as hip_runtime_api.h of HIP 6 and 7 orders it; runs of members that the
 * stand-in leaves zero are arrays. */
struct properties {
    char name[256];
    char uuid[16];
    char luid[8];
    unsigned luid_mask;
    size_t total_global_mem, shared_mem_per_block;
    int regs_per_block, warp_size;
    size_t mem_pitch;
    int max_threads_per_block, max_threads_dim[3], max_grid_size[3], clock_rate;
    size_t total_const_mem;
    int major, minor;
    size_t texture_alignment, texture_pitch_alignment;
    int device_overlap, multi_processor_count, kernel_exec_timeout, integrated, can_map_host, compute_mode;
    int textures[26]; /* maxTexture1D to maxTextureCubemapLayered */
    int surfaces[14]; /* maxSurface1D to maxSurfaceCubemapLayered */
    size_t surface_alignment;
    int concurrent_kernels, ecc_enabled, pci_bus, pci_device, pci_domain, tcc_driver;
    int async_engines, unified_addressing, memory_clock, memory_bus_width, l2_size, persisting_l2;
    int max_threads_per_multi_processor, stream_priorities, global_l1, local_l1;
    size_t shared_mem_per_multiprocessor;
    int regs_per_multiprocessor, managed_memory, multi_gpu_board, multi_gpu_group, host_native_atomic;
    int single_to_double, pageable_access, concurrent_managed, compute_preemption, host_pointer;
    int cooperative_launch, cooperative_multi_device;
    size_t shared_mem_optin;
    int pageable_host_tables, direct_managed, max_blocks_per_multi_processor, access_policy_window;
    size_t reserved_shared_mem;
    int host_register, sparse_arrays, host_register_read_only, timeline_semaphore, memory_pools, rdma;
    unsigned rdma_flush;
    int rdma_ordering;
    unsigned pool_handle_types;
    int deferred_arrays, ipc_event, cluster_launch, unified_function_pointers;
    int reserved[63], hip_reserved[32];
    char gcn_arch_name[256];
    size_t max_shared_memory_per_multi_processor;
    int clock_instruction_rate;
    unsigned arch_features;
    unsigned *hdp_mem_flush, *hdp_reg_flush;
    int unmatched[4], large_bar, asic_revision;
};

static bool peer_enabled[MAX_DEVICES][MAX_DEVICES];

/* Bytes of LDS that a compute unit has. */
static size_t lds_bytes(const struct device *device) {
    return strncmp(device->arch, "gfx950", 6) ? 65536 : 163840;
}

/* Where a member lies, by the C compiler's reckoning; the tests compare Python's layout with it. */
EXPORT size_t standin_offset(const char *member) {
    if (!strcmp(member, "totalGlobalMem")) return offsetof(struct properties, total_global_mem);
    if (!strcmp(member, "multiProcessorCount")) return offsetof(struct properties, multi_processor_count);
    if (!strcmp(member, "pciBusID")) return offsetof(struct properties, pci_bus);
    if (!strcmp(member, "pciDomainID")) return offsetof(struct properties, pci_domain);
    if (!strcmp(member, "sharedMemPerMultiprocessor"))
        return offsetof(struct properties, shared_mem_per_multiprocessor);
    if (!strcmp(member, "gcnArchName")) return offsetof(struct properties, gcn_arch_name);
    if (!strcmp(member, "asicRevision")) return offsetof(struct properties, asic_revision);
    return !strcmp(member, "sizeof") ? sizeof(struct properties) : (size_t)-1;
}

static bool is_device(int device) { return device >= 0 && device < settings.device_count; }

static hipError_t check_device(int device) {
    if (settings.device_count == 0) return hipErrorNoDevice;
    return is_device(device) ? hipSuccess : hipErrorInvalidDevice;
}

EXPORT hipError_t hipInit(unsigned flags) {
    ENTER(hipInit);
    RETURN(flags ? hipErrorInvalidValue : settings.device_count ? hipSuccess : hipErrorNoDevice);
}

EXPORT hipError_t hipGetDeviceCount(int *count) {
    ENTER(hipGetDeviceCount);
    if (!count) RETURN(hipErrorInvalidValue);
    *count = settings.device_count;
    RETURN(*count ? hipSuccess : hipErrorNoDevice);
}

EXPORT hipError_t hipGetDevice(int *device) {
    ENTER(hipGetDevice);
    if (!device) RETURN(hipErrorInvalidValue);
    if (settings.device_count == 0) RETURN(hipErrorNoDevice);
    *device = current_device;
    RETURN(hipSuccess);
}

EXPORT hipError_t hipSetDevice(int device) {
    ENTER(hipSetDevice);
    hipError_t status = check_device(device);
    if (status == hipSuccess) current_device = device;
    RETURN(status);
}

EXPORT hipError_t hipDeviceGetAttribute(int *value, int attribute, int ordinal) {
    ENTER(hipDeviceGetAttribute);
    hipError_t status = check_device(ordinal);
    if (!value || status != hipSuccess) RETURN(value ? status : hipErrorInvalidValue);
    const struct device *device = &settings.devices[ordinal];
    switch (attribute) { /* numbers of hipDeviceAttribute_t */
        case 56: *value = 1024; break;                                 /* MaxThreadsPerBlock */
        case 57: *value = 2048; break;                                 /* MaxThreadsPerMultiProcessor */
        case 63: *value = device->compute_units; break;                /* MultiprocessorCount */
        case 67: *value = device->pci_bus; break;                      /* PciBusId */
        case 68: *value = device->pci_device; break;                   /* PciDeviceId */
        case 69: *value = device->pci_domain; break;                   /* PciDomainID */
        case 74: *value = (int)lds_bytes(device); break;               /* MaxSharedMemoryPerBlock */
        case 87: *value = 64; break;                                   /* WarpSize */
        case 10002: *value = (int)lds_bytes(device); break;            /* MaxSharedMemoryPerMultiprocessor */
        case 10015: *value = device->physical_units; break;            /* PhysicalMultiProcessorCount */
        default: RETURN(hipErrorInvalidValue);
    }
    RETURN(hipSuccess);
}

EXPORT hipError_t hipGetDevicePropertiesR0600(struct properties *out, int ordinal) {
    ENTER(hipGetDevicePropertiesR0600);
    hipError_t status = check_device(ordinal);
    if (!out || status != hipSuccess) RETURN(out ? status : hipErrorInvalidValue);
    const struct device *device = &settings.devices[ordinal];
    memset(out, 0, sizeof *out);
    memcpy(out->name, device->name, sizeof out->name);
    memcpy(out->gcn_arch_name, device->arch, sizeof out->gcn_arch_name);
    out->total_global_mem = device->memory;
    out->shared_mem_per_block = out->shared_mem_per_multiprocessor = lds_bytes(device);
    out->max_shared_memory_per_multi_processor = lds_bytes(device);
    out->warp_size = 64;
    out->max_threads_per_block = 1024;
    out->max_threads_per_multi_processor = 2048;
    out->multi_processor_count = device->compute_units;
    out->pci_domain = device->pci_domain;
    out->pci_bus = device->pci_bus;
    out->pci_device = device->pci_device;
    out->major = 9;
    out->asic_revision = 1;
    RETURN(hipSuccess);
}

EXPORT hipError_t hipDeviceGetPCIBusId(char *text, int size, int ordinal) {
    ENTER(hipDeviceGetPCIBusId);
    hipError_t status = check_device(ordinal);
    if (!text || size <= 0) RETURN(hipErrorInvalidValue);
    if (status != hipSuccess) RETURN(status);
    const struct device *device = &settings.devices[ordinal];
    int length = snprintf(text, (size_t)size, "%04x:%02x:%02x.0", device->pci_domain, device->pci_bus,
                          device->pci_device);
    RETURN(length < size ? hipSuccess : hipErrorInvalidValue);
}

EXPORT hipError_t hipRuntimeGetVersion(int *version) {
    ENTER(hipRuntimeGetVersion);
    if (!version) RETURN(hipErrorInvalidValue);
    *version = settings.version;
    RETURN(hipSuccess);
}

EXPORT hipError_t hipDriverGetVersion(int *version) {
    ENTER(hipDriverGetVersion);
    if (!version) RETURN(hipErrorInvalidValue);
    if (settings.device_count == 0) RETURN(hipErrorNoDevice);
    *version = settings.version;
    RETURN(hipSuccess);
}

EXPORT hipError_t hipDeviceCanAccessPeer(int *can, int device, int peer) {
    ENTER(hipDeviceCanAccessPeer);
    if (!can) RETURN(hipErrorInvalidValue);
    *can = 0;
    if (device == peer) RETURN(hipSuccess);
    if (!is_device(device) || !is_device(peer)) RETURN(hipErrorInvalidDevice);
    *can = settings.peers;
    RETURN(hipSuccess);
}

static hipError_t set_peer(int peer, bool on, hipError_t when_set_already) {
    if (!is_device(peer) || peer == current_device || !settings.peers) return hipErrorInvalidDevice;
    pthread_mutex_lock(&lock);
    bool *enabled = &peer_enabled[current_device][peer];
    hipError_t status = *enabled == on ? when_set_already : hipSuccess;
    *enabled = on;
    pthread_mutex_unlock(&lock);
    return status;
}

EXPORT hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags) {
    ENTER(hipDeviceEnablePeerAccess);
    if (flags) RETURN(hipErrorInvalidValue);
    RETURN(set_peer(peer, true, hipErrorPeerAccessAlreadyEnabled));
}

EXPORT hipError_t hipDeviceDisablePeerAccess(int peer) {
    ENTER(hipDeviceDisablePeerAccess);
    RETURN(set_peer(peer, false, hipErrorPeerAccessNotEnabled));
}

/* Whether `device` may address `peer`'s memory. */
EXPORT int standin_peer(int device, int peer) { return peer_enabled[device][peer]; }

void device_reset(void) { memset(peer_enabled, 0, sizeof peer_enabled); }
