/* Resident workgroups: made with all their registers, waves, LDS and scratch, and taken apart again. */
#ifndef MONO_EMULATOR_WORKGROUP_H
#define MONO_EMULATOR_WORKGROUP_H

#include "wave.h"

/* Memory of workgroups that have ended, all of one size. */
struct spare {
    struct block *block;
};

/* What waves have from the scheduler. */
struct surroundings {
    uint32_t poison;       /* what registers and LDS hold at the start */
    uint32_t serial;       /* of the next wave */
    uint64_t *progress;
    const uint64_t *clock;
};

/* Workgroup `number` of `l`; NULL when memory is out. */
struct workgroup *workgroup_create(struct spare *spare, struct surroundings *around, struct launch *l,
                                   uint64_t number);
void workgroup_free(struct spare *spare, struct workgroup *g);
void spare_drop(struct spare *spare);

#endif
