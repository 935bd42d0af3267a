/* What the parts of the stand-in HIP library share. The names and numbers are HIP's interface; the
 * behaviour is this project's. See state.c for the settings. */
#ifndef MONO_STANDIN_H
#define MONO_STANDIN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

typedef int hipError_t;
enum {
    hipSuccess = 0,
    hipErrorInvalidValue = 1,
    hipErrorOutOfMemory = 2,
    hipErrorInvalidConfiguration = 9,
    hipErrorNoDevice = 100,
    hipErrorInvalidDevice = 101,
    hipErrorInvalidImage = 200,
    hipErrorInvalidContext = 201,
    hipErrorNoBinaryForGpu = 209,
    hipErrorInvalidHandle = 400,
    hipErrorIllegalState = 401,
    hipErrorNotFound = 500,
    hipErrorNotReady = 600,
    hipErrorPeerAccessAlreadyEnabled = 704,
    hipErrorPeerAccessNotEnabled = 705,
    hipErrorContextIsDestroyed = 709,
    hipErrorHostMemoryAlreadyRegistered = 712,
    hipErrorHostMemoryNotRegistered = 713,
    hipErrorLaunchFailure = 719,
    hipErrorNotSupported = 801,
    hipErrorStreamCaptureUnsupported = 900,
    hipErrorStreamCaptureInvalidated = 901,
    hipErrorStreamCaptureImplicit = 906,
    hipErrorInvalidDevicePointer = 17,
};

enum { MAX_DEVICES = 16, MAX_NAME = 256, MAX_KERNARGS = 4096, RING = 1024, MAX_LOG = 4096 };

/* ---- state.c: settings, failures on command, what is alive, what happened ---- */

struct device {
    char name[MAX_NAME];
    char arch[MAX_NAME];
    int compute_units;
    int physical_units;
    unsigned long long memory;
    int pci_domain, pci_bus, pci_device;
};

struct settings {
    int version;
    int device_count;
    struct device devices[MAX_DEVICES];
    bool any_image;
    bool any_stream;
    bool peers;
    int occupancy; /* < 0: computed from the code object's notes */
};

struct symbol { /* one for each exported function, made by ENTER */
    const char *name;
    atomic_ullong calls;
    struct symbol *next;
    atomic_bool listed;
};

enum alive { MODULES, ALLOCATIONS, IMPORTS, STREAMS, EVENTS, GRAPHS, REGISTERED, ALIVE_KINDS };

extern pthread_mutex_t lock;
extern struct settings settings;
extern _Thread_local int current_device;

hipError_t standin_enter(struct symbol *self);
hipError_t standin_leave(hipError_t status);
void standin_alive(enum alive kind, long change);
void standin_log_add(const char *function, const void *handle);
void standin_start(void); /* reads the environment once */

/* Counts the call, and ends it when it is to fail. */
#define ENTER(function)                                              \
    static struct symbol self_ = {.name = #function};                \
    do {                                                             \
        hipError_t failed_ = standin_enter(&self_);                  \
        if (failed_ != hipSuccess) return standin_leave(failed_);    \
    } while (0)
#define RETURN(status) return standin_leave(status)
#define LOG(handle) standin_log_add(self_.name, (const void *)(handle))

/* ---- image.c: what the stand-in has to know of a code object ---- */

struct argument { unsigned offset, size; };
struct kernel {
    char symbol[MAX_NAME]; /* without .kd */
    struct argument *arguments; /* explicit ones */
    unsigned argument_count;
    unsigned arguments_end; /* bytes up to the end of the last one */
    unsigned kernarg_size, lds, vgprs, max_threads;
};
struct image {
    struct kernel *kernels;
    unsigned kernel_count;
    bool made_up; /* not a code object; every symbol exists */
};
hipError_t image_read(const void *bytes, const char *arch, bool any, struct image *out);
void image_free(struct image *image);

/* ---- module.c ---- */

enum { FUNCTION = 0x6d6f6e6f };
struct function {
    unsigned magic; /* FUNCTION while its module is loaded */
    int device;
    struct kernel kernel;
    struct function *next;
};
struct launch { /* one recorded launch; standin_hip.py has the same layout */
    int32_t device;
    int32_t captured;
    uint32_t grid[3], block[3];
    uint32_t dynamic_lds;
    uint32_t kernarg_size; /* of which MAX_KERNARGS at most are kept */
    uint64_t stream, function;
    char symbol[MAX_NAME];
    uint8_t kernargs[MAX_KERNARGS];
};
void record_launch(const struct launch *launch);
void module_reset(void);
void record_reset(void);

/* ---- stream.c ---- */

enum { STREAM = 0x73747265, EVENT = 0x6576656e };
enum capture { NONE = 0, ACTIVE = 1, INVALIDATED = 2 };
struct graph { struct launch *launches; size_t count; };
struct stream {
    unsigned magic;
    int device;
    unsigned flags;
    enum capture capture;
    int capture_mode;
    pthread_t capturer;
    struct graph *graph;
    bool busy; /* has work that is held */
    bool held; /* nothing on it finishes */
    struct stream *next;
};
/* The stream behind a handle, NULL for the default stream, or an error. */
hipError_t stream_find(uint64_t handle, struct stream **out);
void stream_touch(struct stream *stream);
bool capture_forbids(void); /* and invalidates the captures that forbid it */
void default_stream_wait(void);
void stream_reset(void);
void graph_add(struct stream *stream, const struct launch *launch);

/* ---- memory.c, device.c ---- */
void memory_reset(void);
void device_reset(void);

#endif
