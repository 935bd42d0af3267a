/* Making a workgroup: its memory, and its waves as the dispatcher sets them. See workgroup.h. */
#include "workgroup.h"

#include <stdlib.h>
#include <string.h>

/* One workgroup's registers, waves, LDS and scratch are one piece, which the next workgroup takes over:
 * fresh memory costs more than running a short kernel. */
struct block {
    struct block *next;
    size_t size;
    uint8_t *memory;
};

void spare_drop(struct spare *spare)
{
    while (spare->block) {
        struct block *b = spare->block;
        spare->block = b->next;
        free(b->memory);
        free(b);
    }
}

static struct block *take_block(struct spare *spare, size_t size)
{
    struct block *b = spare->block;
    if (b && b->size == size) {
        spare->block = b->next;
        return b;
    }
    spare_drop(spare);
    b = malloc(sizeof *b);
    if (b && (b->memory = aligned_alloc(64, size))) {
        b->size = size;
        return b;
    }
    free(b);
    return NULL;
}

static void give_block(struct spare *spare, struct block *b)
{
    if (spare->block && spare->block->size != b->size)
        spare_drop(spare);
    b->next = spare->block;
    spare->block = b;
}

/* Registers as the dispatcher sets them (LLVM, "User Guide for AMDGPU Backend", initial kernel state). */
static void set_scalars(struct wave *w, const struct launch *l, const struct workgroup *g)
{
    if (l->dispatch_sgpr != UINT32_MAX)
        set_pair(w->s + l->dispatch_sgpr, l->dispatch);
    if (l->kernarg_sgpr != UINT32_MAX)
        set_pair(w->s + l->kernarg_sgpr, l->kernargs);
    if (l->preload_count)
        memcpy(w->s + l->preload_sgpr, (const uint32_t *)(uintptr_t)l->kernargs + l->preload_offset,
               4 * (size_t)l->preload_count);
    uint32_t next = l->user_sgprs;
    for (int k = 0; k < 3; k++)
        if (l->group_ids >> k & 1)
            w->s[next++] = g->id[k];
}

static void start_wave(struct surroundings *around, struct workgroup *g, struct wave *w, uint32_t number)
{
    struct launch *l = g->launch;
    const uint64_t items = (uint64_t)l->block[0] * l->block[1] * l->block[2];
    w->group = g;
    w->launch = l;
    w->number = number;
    w->serial = around->serial++;
    w->v = g->registers + (size_t)number * l->rows;
    w->lds = g->lds;
    w->lds_size = l->lds_size;
    w->scratch_size = l->scratch_size;
    w->scratch = g->scratch + (size_t)number * LANES * l->scratch_size;
    w->sites = l->sites;
    w->memory = l->memory;
    w->progress = around->progress;
    w->clock = around->clock;
    w->segment = l->entry;
    w->mode = l->mode;
    for (int k = 0; k < 128; k++)
        w->s[k] = around->poison;
    set_scalars(w, l, g);
    uint64_t exec = 0;
    for (int i = 0; i < LANES; i++) {
        const uint64_t item = (uint64_t)number * LANES + (uint64_t)i;
        if (item >= items)
            continue;
        exec |= 1ull << i;
        const uint32_t x = (uint32_t)(item % l->block[0]);
        const uint32_t y = (uint32_t)(item / l->block[0] % l->block[1]);
        const uint32_t z = (uint32_t)(item / l->block[0] / l->block[1]);
        w->v[0][i] = x | y << 10 | z << 20;
    }
    set_pair(w->s + EXEC, exec);
    for (int i = 0; i < LANES; i++)
        w->m[i] = -(uint32_t)(exec >> i & 1);
}

static void poison(void *to, size_t bytes, uint32_t value)
{
    uint32_t *words = to;
    for (size_t k = 0; k < bytes / 4; k++)
        words[k] = value;
}

static size_t rounded(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

struct workgroup *workgroup_create(struct spare *spare, struct surroundings *around, struct launch *l,
                                   uint64_t number)
{
    const uint64_t items = (uint64_t)l->block[0] * l->block[1] * l->block[2];
    const uint32_t waves = (uint32_t)((items + LANES - 1) / LANES);
    const size_t registers = (size_t)waves * l->rows * sizeof(row);
    const size_t lds = rounded(l->lds_size);
    const size_t scratch = rounded((size_t)waves * LANES * l->scratch_size);
    const size_t states = rounded(waves * sizeof(struct wave));
    struct workgroup *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->block = take_block(spare, registers + lds + scratch + states);
    if (!g->block) {
        free(g);
        return NULL;
    }
    uint8_t *memory = g->block->memory;
    poison(memory, registers + lds + scratch, around->poison);
    g->registers = (row *)memory;
    g->lds = memory + registers;
    g->scratch = memory + registers + lds;
    g->wave = (struct wave *)(memory + registers + lds + scratch);
    memset(g->wave, 0, states);
    g->launch = l;
    g->id[0] = (uint32_t)(number % l->grid[0]);
    g->id[1] = (uint32_t)(number / l->grid[0] % l->grid[1]);
    g->id[2] = (uint32_t)(number / l->grid[0] / l->grid[1]);
    g->waves = waves;
    for (uint32_t k = 0; k < waves; k++)
        start_wave(around, g, &g->wave[k], k);
    return g;
}

void workgroup_free(struct spare *spare, struct workgroup *g)
{
    give_block(spare, g->block);
    free(g);
}
