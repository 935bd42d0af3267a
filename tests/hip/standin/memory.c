/* Memory of the stand-in HIP library: device addresses are addresses of this process.
 *
 * Allocations of whole pages are shared memory, which another process maps through its handle; the
 * handle dies with the allocation or its process. Smaller ones cannot be exported. */
#define _GNU_SOURCE
#include "standin.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, HANDLE = 0x68616e64 };
enum kind { ALLOCATION, IMPORT, HOST };
struct block {
    uint8_t *address;
    size_t size;
    int device;
    unsigned flags;
    int fd; /* of the shared memory, or -1 */
    enum kind kind;
    struct block *next;
};
struct handle { /* 64 bytes, as hipIpcMemHandle_t */
    uint32_t magic;
    int32_t pid, fd, device;
    uint64_t inode, size, offset;
    uint8_t unused[24];
};
struct ipc_handle { char bytes[64]; };
_Static_assert(sizeof(struct handle) == sizeof(struct ipc_handle), "a handle has 64 bytes");

static struct block *blocks;
static unsigned long long used[MAX_DEVICES];

/* The block that `address` lies in; the lock is held. */
static struct block *find(const void *address, enum kind kind) {
    for (struct block *b = blocks; b; b = b->next)
        if (b->kind == kind && (const uint8_t *)address >= b->address &&
            (const uint8_t *)address < b->address + b->size)
            return b;
    return NULL;
}

static void add(struct block block) {
    struct block *b = malloc(sizeof *b);
    *b = block;
    pthread_mutex_lock(&lock);
    b->next = blocks;
    blocks = b;
    pthread_mutex_unlock(&lock);
}

static void drop(struct block *block) {
    struct block **at = &blocks;
    while (*at != block) at = &(*at)->next;
    *at = block->next;
    if (block->kind == ALLOCATION) used[block->device] -= block->size;
    if (block->kind != HOST) munmap(block->address, (block->size + PAGE - 1) / PAGE * PAGE);
    if (block->fd >= 0) close(block->fd);
    free(block);
}

void memory_reset(void) {
    pthread_mutex_lock(&lock);
    while (blocks) drop(blocks);
    pthread_mutex_unlock(&lock);
}

static hipError_t allocate(void **out, size_t size, unsigned flags) {
    if (!out) return hipErrorInvalidValue;
    *out = NULL;
    if (settings.device_count == 0) return hipErrorNoDevice;
    if (size == 0) return hipSuccess;
    int device = current_device;
    unsigned long long memory = settings.devices[device].memory;
    pthread_mutex_lock(&lock);
    bool fits = size <= memory && used[device] <= memory - size;
    if (fits) used[device] += size;
    pthread_mutex_unlock(&lock);
    if (!fits) return hipErrorOutOfMemory;
    int fd = size % PAGE ? -1 : memfd_create("standin-hip", MFD_CLOEXEC);
    size_t mapped = (size + PAGE - 1) / PAGE * PAGE;
    void *address = MAP_FAILED;
    if (fd < 0 || ftruncate(fd, (off_t)size) == 0)
        address = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
                       fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (address == MAP_FAILED) {
        if (fd >= 0) close(fd);
        used[device] -= size;
        return hipErrorOutOfMemory;
    }
    add((struct block){address, size, device, flags, fd, ALLOCATION, NULL});
    standin_alive(ALLOCATIONS, 1);
    *out = address;
    return hipSuccess;
}

EXPORT hipError_t hipMalloc(void **out, size_t size) {
    ENTER(hipMalloc);
    if (capture_forbids()) RETURN(hipErrorStreamCaptureUnsupported);
    hipError_t status = allocate(out, size, 0);
    if (status == hipSuccess) LOG(*out);
    RETURN(status);
}

EXPORT hipError_t hipExtMallocWithFlags(void **out, size_t size, unsigned flags) {
    ENTER(hipExtMallocWithFlags);
    if (flags > 3) RETURN(hipErrorInvalidValue); /* 1 fine-grained, 2 signals, 3 uncached */
    hipError_t status = allocate(out, size, flags);
    if (status == hipSuccess) LOG(*out);
    RETURN(status);
}

/* Flags of the allocation at this address, or -1. */
EXPORT int standin_memory_flags(const void *address) {
    pthread_mutex_lock(&lock);
    struct block *block = find(address, ALLOCATION);
    int flags = block ? (int)block->flags : -1;
    pthread_mutex_unlock(&lock);
    return flags;
}

/* The device whose allocation or import holds this address, or -1. */
EXPORT int standin_memory_device(const void *address) {
    pthread_mutex_lock(&lock);
    struct block *block = find(address, ALLOCATION);
    if (!block) block = find(address, IMPORT);
    int device = block ? block->device : -1;
    pthread_mutex_unlock(&lock);
    return device;
}

static hipError_t release(void *address, enum kind kind, enum alive counter) {
    pthread_mutex_lock(&lock);
    struct block *block = find(address, kind);
    bool whole = block && block->address == address;
    /* A mapped import may begin inside of the exported allocation. */
    if (block && (whole || kind == IMPORT)) {
        drop(block);
        standin_alive(counter, -1);
        whole = true;
    }
    pthread_mutex_unlock(&lock);
    return whole ? hipSuccess : hipErrorInvalidValue;
}

EXPORT hipError_t hipFree(void *address) {
    ENTER(hipFree);
    if (capture_forbids()) RETURN(hipErrorStreamCaptureUnsupported);
    if (!address) RETURN(hipSuccess);
    hipError_t status = release(address, ALLOCATION, ALLOCATIONS);
    if (status == hipSuccess) LOG(address);
    RETURN(status);
}

/* ---- other processes ---- */

EXPORT hipError_t hipIpcGetMemHandle(struct ipc_handle *out, void *address) {
    ENTER(hipIpcGetMemHandle);
    if (!out || !address) RETURN(hipErrorInvalidValue);
    pthread_mutex_lock(&lock);
    struct block *block = find(address, ALLOCATION);
    struct stat about;
    bool shared = block && block->fd >= 0 && fstat(block->fd, &about) == 0;
    if (shared) {
        struct handle handle = {HANDLE, getpid(), block->fd, block->device, about.st_ino, block->size,
                                (uint64_t)((uint8_t *)address - block->address), {0}};
        memcpy(out, &handle, sizeof handle);
    }
    pthread_mutex_unlock(&lock);
    RETURN(shared ? hipSuccess : hipErrorInvalidValue);
}

EXPORT hipError_t hipIpcOpenMemHandle(void **out, struct ipc_handle bytes, unsigned flags) {
    ENTER(hipIpcOpenMemHandle);
    struct handle handle;
    memcpy(&handle, &bytes, sizeof handle);
    if (!out || flags != 1) RETURN(hipErrorInvalidValue); /* hipIpcMemLazyEnablePeerAccess */
    if (settings.device_count == 0) RETURN(hipErrorNoDevice);
    if (handle.magic != HANDLE || handle.size == 0) RETURN(hipErrorInvalidValue);
    if (handle.pid == getpid()) RETURN(hipErrorInvalidContext);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.pid, handle.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat about;
    void *address = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &about) == 0 && about.st_ino == handle.inode)
        address = mmap(NULL, handle.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
        if (fd >= 0) close(fd);
        RETURN(hipErrorInvalidDevicePointer);
    }
    add((struct block){address, handle.size, current_device, 0, fd, IMPORT, NULL});
    standin_alive(IMPORTS, 1);
    *out = (uint8_t *)address + handle.offset;
    LOG(*out);
    RETURN(hipSuccess);
}

EXPORT hipError_t hipIpcCloseMemHandle(void *address) {
    ENTER(hipIpcCloseMemHandle);
    if (!address) RETURN(hipErrorInvalidValue);
    hipError_t status = release(address, IMPORT, IMPORTS);
    if (status == hipSuccess) LOG(address);
    RETURN(status);
}

/* ---- copying and filling ---- */

/* Whether `size` bytes at `address` are inside of one block of device memory. */
static bool on_device(const void *address, size_t size) {
    pthread_mutex_lock(&lock);
    struct block *block = find(address, ALLOCATION);
    if (!block) block = find(address, IMPORT);
    if (!block) block = find(address, HOST);
    bool inside = block && size <= (size_t)(block->address + block->size - (const uint8_t *)address);
    pthread_mutex_unlock(&lock);
    return inside;
}

static hipError_t copy(void *to, const void *from, size_t size, int kind) {
    if (size == 0) return hipSuccess;
    if (!to || !from || kind < 0 || kind > 4) return hipErrorInvalidValue;
    bool to_device = kind == 1 || kind == 3, from_device = kind == 2 || kind == 3;
    if ((to_device && !on_device(to, size)) || (from_device && !on_device(from, size)))
        return hipErrorInvalidValue;
    memmove(to, from, size);
    return hipSuccess;
}

/* What is enqueued on a captured stream would have to be replayed, which only launches are. */
static hipError_t plain_stream(uint64_t handle) {
    struct stream *stream;
    hipError_t status = stream_find(handle, &stream);
    if (status == hipSuccess && stream && stream->capture != NONE) return hipErrorNotSupported;
    if (status == hipSuccess) stream_touch(stream);
    return status;
}

EXPORT hipError_t hipMemcpy(void *to, const void *from, size_t size, int kind) {
    ENTER(hipMemcpy);
    if (capture_forbids()) RETURN(hipErrorStreamCaptureUnsupported);
    default_stream_wait();
    RETURN(copy(to, from, size, kind));
}

EXPORT hipError_t hipMemcpyAsync(void *to, const void *from, size_t size, int kind, uint64_t stream) {
    ENTER(hipMemcpyAsync);
    hipError_t status = plain_stream(stream);
    RETURN(status == hipSuccess ? copy(to, from, size, kind) : status);
}

static hipError_t fill(void *to, uint32_t value, size_t count, size_t width) {
    if (count && !on_device(to, count * width)) return hipErrorInvalidValue;
    for (size_t i = 0; i < count * width; i++) ((uint8_t *)to)[i] = (uint8_t)(value >> 8 * (i % width));
    return hipSuccess;
}

EXPORT hipError_t hipMemset(void *to, int value, size_t size) {
    ENTER(hipMemset);
    if (capture_forbids()) RETURN(hipErrorStreamCaptureUnsupported);
    RETURN(fill(to, (uint32_t)value, size, 1));
}

EXPORT hipError_t hipMemsetAsync(void *to, int value, size_t size, uint64_t stream) {
    ENTER(hipMemsetAsync);
    hipError_t status = plain_stream(stream);
    RETURN(status == hipSuccess ? fill(to, (uint32_t)value, size, 1) : status);
}

EXPORT hipError_t hipMemsetD8(void *to, unsigned char value, size_t count) {
    ENTER(hipMemsetD8);
    if (capture_forbids()) RETURN(hipErrorStreamCaptureUnsupported);
    RETURN(fill(to, value, count, 1));
}

EXPORT hipError_t hipMemsetD16Async(void *to, unsigned short value, size_t count, uint64_t stream) {
    ENTER(hipMemsetD16Async);
    hipError_t status = plain_stream(stream);
    RETURN(status == hipSuccess ? fill(to, value, count, 2) : status);
}

EXPORT hipError_t hipMemsetD32Async(void *to, int value, size_t count, uint64_t stream) {
    ENTER(hipMemsetD32Async);
    hipError_t status = plain_stream(stream);
    RETURN(status == hipSuccess ? fill(to, (uint32_t)value, count, 4) : status);
}

/* ---- host memory ---- */

EXPORT hipError_t hipHostRegister(void *address, size_t size, unsigned flags) {
    ENTER(hipHostRegister);
    (void)flags;
    if (capture_forbids()) RETURN(hipErrorStreamCaptureUnsupported);
    if (!address || !size) RETURN(hipErrorInvalidValue);
    pthread_mutex_lock(&lock);
    bool twice = find(address, HOST) != NULL;
    pthread_mutex_unlock(&lock);
    if (twice) RETURN(hipErrorHostMemoryAlreadyRegistered);
    add((struct block){address, size, current_device, 0, -1, HOST, NULL});
    standin_alive(REGISTERED, 1);
    RETURN(hipSuccess);
}

EXPORT hipError_t hipHostUnregister(void *address) {
    ENTER(hipHostUnregister);
    if (capture_forbids()) RETURN(hipErrorStreamCaptureUnsupported);
    hipError_t status = release(address, HOST, REGISTERED);
    RETURN(status == hipSuccess ? status : hipErrorHostMemoryNotRegistered);
}

EXPORT hipError_t hipHostGetDevicePointer(void **out, void *address, unsigned flags) {
    ENTER(hipHostGetDevicePointer);
    if (!out || flags) RETURN(hipErrorInvalidValue);
    pthread_mutex_lock(&lock);
    struct block *block = find(address, HOST);
    pthread_mutex_unlock(&lock);
    if (!block) RETURN(hipErrorInvalidValue);
    *out = address;
    RETURN(hipSuccess);
}
