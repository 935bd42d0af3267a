/* The scheduler: runs the workgroups of all launches of all devices in turns, in one thread. */
#ifndef MONO_EMULATOR_ENGINE_H
#define MONO_EMULATOR_ENGINE_H

#include "wave.h"

#define EXPORT __attribute__((visibility("default")))

enum outcome { ENGINE_IDLE = 0, ENGINE_MORE = 1, ENGINE_FAULT = 2, ENGINE_DEADLOCK = 3, ENGINE_MEMORY = 4 };

struct engine_options {
    uint64_t quantum;       /* instructions a turn */
    uint64_t seed;
    uint32_t is_random;     /* random order, turns and skips by seed */
    uint32_t poison;        /* what registers and LDS hold at the start */
    uint64_t patience;      /* instructions that a waiting wave may take before nobody is seen to move */
};

struct engine;

EXPORT struct engine *engine_create(const struct engine_options *options);
EXPORT void engine_destroy(struct engine *e);
/* Queue a launch behind those of its stream; the caller keeps `l` until it is finished. */
EXPORT void engine_submit(struct engine *e, struct launch *l);
/* Run about `budget` wave-instructions. */
EXPORT enum outcome engine_run(struct engine *e, uint64_t budget);
/* Throw away every launch that is not finished. */
EXPORT void engine_abort(struct engine *e);
/* The wave that stopped the engine with ENGINE_FAULT. */
EXPORT const struct wave *engine_fault(const struct engine *e);
EXPORT const struct fault *engine_fault_of(const struct wave *w);
/* Walk over the waves that have not ended; NULL starts, NULL ends. */
EXPORT const struct wave *engine_next_wave(const struct engine *e, const struct wave *after);
/* The state of a stopped wave, for reports. */
EXPORT void engine_describe(const struct wave *w, uint32_t group[3], uint32_t *number, uint32_t *segment,
                     uint32_t *state, uint32_t *device, const struct launch **launch);
EXPORT uint64_t engine_clock(const struct engine *e);

#endif
