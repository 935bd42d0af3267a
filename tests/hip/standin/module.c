/* Modules, functions, occupancy and launches of the stand-in HIP library. */
#include "standin.h"

#include <stdlib.h>
#include <string.h>

enum { MODULE = 0x6d6f6475 };
struct module {
    unsigned magic; /* MODULE while it is loaded: a released one is kept, so that its use is seen */
    int device;
    struct image image;
    struct function *functions;
    struct module *next;
};
static struct module *modules;

static struct module *module_of(void *handle) {
    for (struct module *m = modules; m; m = m->next)
        if (m == handle && m->magic == MODULE) return m;
    return NULL;
}

static void unload(struct module *module) {
    module->magic = 0;
    for (struct function *f = module->functions; f; f = f->next) f->magic = 0;
    image_free(&module->image);
}

void module_reset(void) {
    pthread_mutex_lock(&lock);
    for (struct module *m = modules; m; m = m->next)
        if (m->magic == MODULE) unload(m);
    pthread_mutex_unlock(&lock);
}

static hipError_t load(void **out, const void *bytes) {
    if (!out || !bytes) return hipErrorInvalidValue;
    if (settings.device_count == 0) return hipErrorNoDevice;
    struct module *module = calloc(1, sizeof *module);
    const char *arch = settings.devices[current_device].arch;
    hipError_t status = image_read(bytes, arch, settings.any_image, &module->image);
    if (status != hipSuccess) {
        free(module);
        return status;
    }
    module->magic = MODULE;
    module->device = current_device;
    pthread_mutex_lock(&lock);
    module->next = modules;
    modules = module;
    pthread_mutex_unlock(&lock);
    standin_alive(MODULES, 1);
    *out = module;
    return hipSuccess;
}

EXPORT hipError_t hipModuleLoadData(void **out, const void *bytes) {
    ENTER(hipModuleLoadData);
    hipError_t status = load(out, bytes);
    if (status == hipSuccess) LOG(*out);
    RETURN(status);
}

EXPORT hipError_t hipModuleLoadDataEx(void **out, const void *bytes, unsigned n, void *options, void **values) {
    ENTER(hipModuleLoadDataEx);
    (void)n, (void)options, (void)values;
    hipError_t status = load(out, bytes);
    if (status == hipSuccess) LOG(*out);
    RETURN(status);
}

EXPORT hipError_t hipModuleUnload(void *handle) {
    ENTER(hipModuleUnload);
    pthread_mutex_lock(&lock);
    struct module *module = module_of(handle);
    if (module) unload(module);
    pthread_mutex_unlock(&lock);
    if (!module) RETURN(hipErrorInvalidHandle);
    standin_alive(MODULES, -1);
    LOG(handle);
    RETURN(hipSuccess);
}

static struct function *find_function(struct module *module, const char *name) {
    for (struct function *f = module->functions; f; f = f->next)
        if (!strcmp(f->kernel.symbol, name)) return f;
    struct kernel kernel = {0};
    bool found = module->image.made_up && strlen(name) < MAX_NAME;
    if (found) strcpy(kernel.symbol, name);
    for (unsigned i = 0; i < module->image.kernel_count && !found; i++)
        if (!strcmp(module->image.kernels[i].symbol, name)) {
            kernel = module->image.kernels[i];
            found = true;
        }
    if (!found) return NULL;
    struct function *function = calloc(1, sizeof *function);
    *function = (struct function){FUNCTION, module->device, kernel, module->functions};
    module->functions = function;
    return function;
}

EXPORT hipError_t hipModuleGetFunction(void **out, void *handle, const char *name) {
    ENTER(hipModuleGetFunction);
    if (!out || !name || !*name) RETURN(hipErrorInvalidValue);
    pthread_mutex_lock(&lock);
    struct module *module = module_of(handle);
    struct function *function = module ? find_function(module, name) : NULL;
    pthread_mutex_unlock(&lock);
    if (!module) RETURN(hipErrorInvalidHandle);
    if (module->device != current_device) RETURN(hipErrorInvalidDevice); /* HIP ends the process */
    if (!function) RETURN(hipErrorNotFound);
    *out = function;
    RETURN(hipSuccess);
}

/* A compute unit of CDNA3 and CDNA4 has 4 SIMDs of 512 registers a lane (in steps of 8) and 8 waves. */
static int occupancy(const struct kernel *kernel, const struct device *device, int threads, size_t lds) {
    int waves = (threads + 63) / 64;
    int registers = kernel->vgprs ? ((int)kernel->vgprs + 7) / 8 * 8 : 8;
    int per_simd = 512 / registers < 8 ? 512 / registers : 8;
    int workgroups = per_simd * 4 / waves;
    bool gfx950 = !strncmp(device->arch, "gfx950", 6);
    size_t all = gfx950 ? 163840 : 65536, step = gfx950 ? 1280 : 512;
    size_t one = (kernel->lds + lds + step - 1) / step * step;
    if (one && (int)(all / one) < workgroups) workgroups = (int)(all / one);
    return workgroups;
}

EXPORT hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int *out, struct function *function,
                                                                     int threads, size_t lds) {
    ENTER(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor);
    if (!out || threads <= 0) RETURN(hipErrorInvalidValue);
    if (!function || function->magic != FUNCTION) RETURN(hipErrorInvalidHandle);
    *out = settings.occupancy >= 0
               ? settings.occupancy
               : occupancy(&function->kernel, &settings.devices[function->device], threads, lds);
    RETURN(hipSuccess);
}

static hipError_t check_launch(const struct function *function, const struct launch *launch,
                               void **parameters, void **extra) {
    if (parameters && extra) return hipErrorInvalidValue;
    if (!launch->grid[0] || !launch->grid[1] || !launch->grid[2]) return hipErrorInvalidValue;
    uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
    if (threads == 0) return hipErrorInvalidConfiguration;
    if ((uint64_t)launch->grid[0] * launch->block[0] > UINT32_MAX) return hipErrorInvalidConfiguration;
    if (threads > 1024) return hipErrorInvalidValue;
    if (function->kernel.max_threads && threads > function->kernel.max_threads) return hipErrorLaunchFailure;
    if (function->kernel.argument_count && !parameters && !extra) return hipErrorInvalidValue;
    return function->device == launch->device ? hipSuccess : hipErrorInvalidDevice;
}

static hipError_t kernargs_of(const struct kernel *kernel, void **parameters, void **extra,
                              struct launch *launch) {
    if (extra) {
        if (extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4] != (void *)3)
            return hipErrorInvalidValue;
        size_t size = *(size_t *)extra[3];
        if (size < kernel->arguments_end) return hipErrorInvalidValue; /* HIP would read beyond the buffer */
        launch->kernarg_size = (uint32_t)size;
        memcpy(launch->kernargs, extra[1], size < MAX_KERNARGS ? size : MAX_KERNARGS);
    } else if (parameters) {
        launch->kernarg_size = kernel->kernarg_size;
        memset(launch->kernargs, 0, kernel->kernarg_size < MAX_KERNARGS ? kernel->kernarg_size : MAX_KERNARGS);
        for (unsigned i = 0; i < kernel->argument_count; i++) {
            struct argument a = kernel->arguments[i];
            if (a.offset + a.size <= MAX_KERNARGS) memcpy(launch->kernargs + a.offset, parameters[i], a.size);
        }
    }
    return hipSuccess;
}

EXPORT hipError_t hipModuleLaunchKernel(struct function *function, unsigned gx, unsigned gy, unsigned gz,
                                        unsigned bx, unsigned by, unsigned bz, unsigned lds,
                                        uint64_t stream_handle, void **parameters, void **extra) {
    ENTER(hipModuleLaunchKernel);
    static _Thread_local struct launch launch; /* 4 KiB of kernargs: not cleared for each call */
    if (!function || function->magic != FUNCTION) RETURN(hipErrorInvalidHandle);
    struct stream *stream;
    hipError_t status = stream_find(stream_handle, &stream);
    if (status != hipSuccess) RETURN(status);
    if (stream && stream->capture == INVALIDATED) RETURN(hipErrorStreamCaptureInvalidated);
    bool captured = stream && stream->capture == ACTIVE;
    /* A captured launch is looked up on the thread's device (CLR: GraphKernelNode), another one on
     * the stream's. */
    launch.device = stream && !captured ? stream->device : current_device;
    launch.captured = captured;
    launch.grid[0] = gx, launch.grid[1] = gy, launch.grid[2] = gz;
    launch.block[0] = bx, launch.block[1] = by, launch.block[2] = bz;
    launch.dynamic_lds = lds;
    launch.kernarg_size = 0;
    launch.stream = stream_handle;
    launch.function = (uint64_t)(uintptr_t)function;
    status = check_launch(function, &launch, parameters, extra);
    if (status == hipSuccess) status = kernargs_of(&function->kernel, parameters, extra, &launch);
    if (status != hipSuccess) RETURN(status);
    memcpy(launch.symbol, function->kernel.symbol, MAX_NAME);
    if (captured) graph_add(stream, &launch);
    else stream_touch(stream);
    record_launch(&launch);
    RETURN(hipSuccess);
}
