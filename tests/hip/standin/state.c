/* Settings, failures on command, counters and the log of the stand-in HIP library.
 *
 * Environment (read at the first call and by standin_reset):
 *   STANDIN_DEVICES      devices separated by ';', each 'key=value' pairs separated by ',':
 *                        arch, cus, physical, memory (bytes), name, pci (domain:bus:device, hexadecimal).
 *                        'none' is no device. Unset: one gfx942.
 *   STANDIN_VERSION      what hipRuntimeGetVersion says; unset: of the major version it was built as.
 *   STANDIN_FAIL         'hipMalloc=2,hipModuleLoadData=209@3': status of every call after the first
 *                        three (none without @).
 *   STANDIN_RECORD       0: launches are counted and not recorded.
 *   STANDIN_RECORD_FILE  launches are appended here as lines of JSON.
 *   STANDIN_ANY_IMAGE    1: what is not an AMDGPU ELF loads too, and has every symbol.
 *   STANDIN_ANY_STREAM   1: any number is a stream of the current device.
 *   STANDIN_PEERS        0: no device can access another.
 *   STANDIN_OCCUPANCY    workgroups a compute unit holds, instead of the computed number.
 */
#define _GNU_SOURCE
#include "standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef STANDIN_MAJOR
#define STANDIN_MAJOR 7
#endif
#define STANDIN_DEFAULT_VERSION (STANDIN_MAJOR * 10000000 + 51831)

enum { MAX_RULES = 64 };
struct rule { char symbol[MAX_NAME]; int status; unsigned long long after; };

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct settings settings;
_Thread_local int current_device;
static _Thread_local hipError_t last_error;

static struct symbol *symbols;
static struct rule rules[MAX_RULES];
static atomic_int rule_count;
static atomic_long alive[ALIVE_KINDS];
static atomic_bool started;
static struct { const char *function; uint64_t handle; } events[MAX_LOG];
static size_t event_count;

static void device_defaults(struct device *device, int ordinal) {
    memset(device, 0, sizeof *device);
    strcpy(device->name, "AMD Instinct MI300X");
    strcpy(device->arch, "gfx942:sramecc+:xnack-");
    device->compute_units = device->physical_units = 304;
    device->memory = 192ull << 30;
    device->pci_bus = 5 + 16 * ordinal;
}

static void device_pair(struct device *device, char *pair) {
    char *value = strchr(pair, '=');
    if (!value) return;
    *value++ = 0;
    if (!strcmp(pair, "arch")) snprintf(device->arch, MAX_NAME, "%s", value);
    else if (!strcmp(pair, "name")) snprintf(device->name, MAX_NAME, "%s", value);
    else if (!strcmp(pair, "cus")) device->compute_units = device->physical_units = atoi(value);
    else if (!strcmp(pair, "physical")) device->physical_units = atoi(value);
    else if (!strcmp(pair, "memory")) device->memory = strtoull(value, NULL, 0);
    else if (!strcmp(pair, "pci"))
        sscanf(value, "%x:%x:%x", &device->pci_domain, &device->pci_bus, &device->pci_device);
}

/* Replaces the devices; the grammar is that of STANDIN_DEVICES. Memory in use is forgotten. */
EXPORT void standin_devices(const char *text) {
    char *copy = strdup(text), *rest = copy, *one;
    pthread_mutex_lock(&lock);
    settings.device_count = 0;
    if (strcmp(text, "none"))
        while ((one = strsep(&rest, ";")) && settings.device_count < MAX_DEVICES) {
            struct device *device = &settings.devices[settings.device_count];
            device_defaults(device, settings.device_count++);
            char *pair;
            while ((pair = strsep(&one, ","))) device_pair(device, pair);
        }
    pthread_mutex_unlock(&lock);
    free(copy);
}

/* Calls of `symbol` return `status` after the next `after` calls; status 0 ends that. */
EXPORT void standin_fail(const char *symbol, int status, unsigned long long after) {
    pthread_mutex_lock(&lock);
    unsigned long long calls = 0;
    for (struct symbol *s = symbols; s; s = s->next)
        if (!strcmp(s->name, symbol)) calls += atomic_load(&s->calls);
    int n = atomic_load(&rule_count), i = 0;
    while (i < n && strcmp(rules[i].symbol, symbol)) i++;
    if (i < MAX_RULES) {
        snprintf(rules[i].symbol, MAX_NAME, "%s", symbol);
        rules[i].status = status;
        rules[i].after = calls + after;
        if (i == n) atomic_store(&rule_count, n + 1);
    }
    pthread_mutex_unlock(&lock);
}

static void fail_from_text(const char *text) {
    char *copy = strdup(text), *rest = copy, *one;
    while ((one = strsep(&rest, ","))) {
        char *value = strchr(one, '=');
        if (!value) continue;
        *value++ = 0;
        char *after = strchr(value, '@');
        standin_fail(one, atoi(value), after ? strtoull(after + 1, NULL, 0) : 0);
    }
    free(copy);
}

static bool flag(const char *name, bool otherwise) {
    const char *value = getenv(name);
    return value ? strcmp(value, "0") != 0 : otherwise;
}

static void read_environment(void) {
    const char *text = getenv("STANDIN_VERSION");
    settings.version = text ? atoi(text) : STANDIN_DEFAULT_VERSION;
    text = getenv("STANDIN_OCCUPANCY");
    settings.occupancy = text ? atoi(text) : -1;
    settings.any_image = flag("STANDIN_ANY_IMAGE", false);
    settings.any_stream = flag("STANDIN_ANY_STREAM", false);
    settings.peers = flag("STANDIN_PEERS", true);
    text = getenv("STANDIN_DEVICES");
    standin_devices(text ? text : "");
    if ((text = getenv("STANDIN_FAIL"))) fail_from_text(text);
    record_reset();
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void start(void) {
    read_environment();
    atomic_store(&started, true);
}

void standin_start(void) {
    if (!atomic_load_explicit(&started, memory_order_acquire)) pthread_once(&once, start);
}

/* Forgets everything: objects, records, counters, failures; the environment is read anew. */
EXPORT void standin_reset(void) {
    standin_start();
    module_reset();
    stream_reset();
    memory_reset();
    device_reset();
    pthread_mutex_lock(&lock);
    atomic_store(&rule_count, 0);
    for (struct symbol *s = symbols; s; s = s->next) atomic_store(&s->calls, 0);
    for (int i = 0; i < ALIVE_KINDS; i++) atomic_store(&alive[i], 0);
    event_count = 0;
    pthread_mutex_unlock(&lock);
    current_device = 0;
    last_error = hipSuccess;
    read_environment();
}

EXPORT void standin_version(int version) { settings.version = version; }
EXPORT void standin_any_image(int on) { settings.any_image = on; }
EXPORT void standin_any_stream(int on) { settings.any_stream = on; }
EXPORT void standin_peers(int on) { settings.peers = on; }
EXPORT void standin_occupancy(int workgroups) { settings.occupancy = workgroups; }

hipError_t standin_enter(struct symbol *self) {
    standin_start();
    unsigned long long before = atomic_fetch_add_explicit(&self->calls, 1, memory_order_relaxed);
    if (!atomic_load_explicit(&self->listed, memory_order_relaxed) && !atomic_exchange(&self->listed, true)) {
        pthread_mutex_lock(&lock);
        self->next = symbols;
        symbols = self;
        pthread_mutex_unlock(&lock);
    }
    int n = atomic_load_explicit(&rule_count, memory_order_acquire), status = hipSuccess;
    if (n == 0) return hipSuccess;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n; i++)
        if (!strcmp(rules[i].symbol, self->name) && before >= rules[i].after) status = rules[i].status;
    pthread_mutex_unlock(&lock);
    return status;
}

hipError_t standin_leave(hipError_t status) {
    if (status != hipSuccess) last_error = status;
    return status;
}

void standin_alive(enum alive kind, long change) { atomic_fetch_add(&alive[kind], change); }

/* Objects of this kind that are alive, or -1 for an unknown kind. */
EXPORT long standin_count(const char *kind) {
    static const char *const names[ALIVE_KINDS] = {
        "modules", "allocations", "imports", "streams", "events", "graphs", "registered"};
    for (int i = 0; i < ALIVE_KINDS; i++)
        if (!strcmp(names[i], kind)) return atomic_load(&alive[i]);
    return -1;
}

EXPORT unsigned long long standin_calls(const char *symbol) {
    unsigned long long calls = 0;
    pthread_mutex_lock(&lock);
    for (struct symbol *s = symbols; s; s = s->next)
        if (!strcmp(s->name, symbol)) calls = atomic_load(&s->calls);
    pthread_mutex_unlock(&lock);
    return calls;
}

void standin_log_add(const char *function, const void *handle) {
    pthread_mutex_lock(&lock);
    if (event_count < MAX_LOG) {
        events[event_count].function = function;
        events[event_count++].handle = (uint64_t)(uintptr_t)handle;
    }
    pthread_mutex_unlock(&lock);
}

/* The index-th thing that was made or released; NULL beyond the last. */
EXPORT const char *standin_log(size_t index, uint64_t *handle) {
    pthread_mutex_lock(&lock);
    const char *function = NULL;
    if (index < event_count) {
        function = events[index].function;
        *handle = events[index].handle;
    }
    pthread_mutex_unlock(&lock);
    return function;
}

static const struct { int status; const char *name, *text; } errors[] = {
#define E(name, text) {name, #name, text}
    E(hipSuccess, "no error (stand-in)"),
    E(hipErrorInvalidValue, "a parameter is not valid (stand-in)"),
    E(hipErrorOutOfMemory, "no memory left (stand-in)"),
    E(hipErrorInvalidConfiguration, "the workgroup is not valid (stand-in)"),
    E(hipErrorInvalidDevicePointer, "not a device address (stand-in)"),
    E(hipErrorNoDevice, "no device here (stand-in)"),
    E(hipErrorInvalidDevice, "no device of this number (stand-in)"),
    E(hipErrorInvalidImage, "not a code object (stand-in)"),
    E(hipErrorInvalidContext, "not from this process (stand-in)"),
    E(hipErrorNoBinaryForGpu, "code for another device (stand-in)"),
    E(hipErrorInvalidHandle, "the handle is not valid (stand-in)"),
    E(hipErrorIllegalState, "not in this state (stand-in)"),
    E(hipErrorNotFound, "no such symbol (stand-in)"),
    E(hipErrorNotReady, "not finished (stand-in)"),
    E(hipErrorPeerAccessAlreadyEnabled, "the peer is enabled (stand-in)"),
    E(hipErrorPeerAccessNotEnabled, "the peer is not enabled (stand-in)"),
    E(hipErrorContextIsDestroyed, "not a stream (stand-in)"),
    E(hipErrorHostMemoryAlreadyRegistered, "registered twice (stand-in)"),
    E(hipErrorHostMemoryNotRegistered, "not registered (stand-in)"),
    E(hipErrorLaunchFailure, "the launch failed (stand-in)"),
    E(hipErrorNotSupported, "not supported (stand-in)"),
    E(hipErrorStreamCaptureUnsupported, "not while a stream is captured (stand-in)"),
    E(hipErrorStreamCaptureInvalidated, "the capture is spoilt (stand-in)"),
    E(hipErrorStreamCaptureImplicit, "would join a captured stream (stand-in)"),
#undef E
};

EXPORT const char *hipGetErrorName(hipError_t status) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].status == status) return errors[i].name;
    return "hipErrorUnknown";
}

EXPORT const char *hipGetErrorString(hipError_t status) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].status == status) return errors[i].text;
    return "unknown error (stand-in)";
}

EXPORT hipError_t hipGetLastError(void) {
    hipError_t status = last_error;
    last_error = hipSuccess;
    return status;
}
