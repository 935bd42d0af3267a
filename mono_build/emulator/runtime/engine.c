/* The scheduler; see engine.h. */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

#include "workgroup.h"

enum launch_state { LAUNCH_WAITING = 0, LAUNCH_RUNNING = 1, LAUNCH_FINISHED = 2, LAUNCH_STOPPED = 3 };

struct engine {
    struct engine_options options;
    struct launch *launches; /* in order of submission, unfinished only */
    struct workgroup *groups; /* resident */
    struct workgroup **last_group; /* where the next one is linked in */
    struct surroundings around;
    struct spare spare;
    const struct wave *faulty;
    uint64_t random;
    uint64_t clock;     /* wave-instructions executed in all */
    uint64_t time;      /* what s_memtime counts: rounds */
    uint64_t progress;  /* changes of memory, ends of waves, starts of workgroups */
    uint64_t seen;      /* `progress` when it was last looked at */
    uint64_t still_since; /* `clock` at that moment */
    uint64_t ready_waves; /* of the last round */
};

struct engine *engine_create(const struct engine_options *options)
{
    struct engine *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->options = *options;
    e->around = (struct surroundings){options->poison, 0, &e->progress, &e->time};
    e->last_group = &e->groups;
    e->random = options->seed * 0x9E3779B97F4A7C15ull + 0x2545F4914F6CDD1Dull;
    return e;
}

void engine_abort(struct engine *e)
{
    while (e->groups) {
        struct workgroup *g = e->groups;
        e->groups = g->next;
        workgroup_free(&e->spare, g);
    }
    e->last_group = &e->groups;
    for (struct launch *l = e->launches; l; l = l->next)
        l->state = LAUNCH_STOPPED;
    e->launches = NULL;
    e->faulty = NULL;
}

void engine_destroy(struct engine *e)
{
    engine_abort(e);
    spare_drop(&e->spare);
    free(e);
}

void engine_submit(struct engine *e, struct launch *l)
{
    struct launch **end = &e->launches;
    while (*end)
        end = &(*end)->next;
    l->next = NULL;
    l->state = LAUNCH_WAITING;
    *end = l;
    e->progress++;
}

static uint64_t next_random(struct engine *e)
{
    e->random ^= e->random << 13;
    e->random ^= e->random >> 7;
    e->random ^= e->random << 17;
    return e->random;
}

static uint64_t total_groups(const struct launch *l)
{
    return (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
}

/* One more workgroup of a running launch; 0 when memory is out. */
static int start_group(struct engine *e, struct launch *l)
{
    struct workgroup *g = workgroup_create(&e->spare, &e->around, l, l->next_group);
    if (!g)
        return 0;
    l->next_group++;
    *e->last_group = g;
    e->last_group = &g->next;
    l->live_groups++;
    e->progress++;
    return 1;
}

/* Begin what may begin: the first launch of every stream, up to what a device holds. */
static int admit(struct engine *e)
{
    for (struct launch *l = e->launches; l; l = l->next) {
        if (l->state == LAUNCH_WAITING) {
            int first = 1;
            for (struct launch *other = e->launches; other != l; other = other->next)
                first = first && !(other->stream == l->stream && other->device == l->device);
            if (!first)
                continue;
            l->state = LAUNCH_RUNNING;
        }
        uint64_t resident = 0;
        for (struct launch *other = e->launches; other; other = other->next)
            resident += other->device == l->device ? other->live_groups : 0;
        for (; l->next_group < total_groups(l) && resident < l->capacity; resident++)
            if (!start_group(e, l))
                return l->live_groups > 0; /* fewer at once, as long as there are some */
    }
    return 1;
}

static void remove_launch(struct engine *e, struct launch *l)
{
    struct launch **link = &e->launches;
    while (*link != l)
        link = &(*link)->next;
    *link = l->next;
    l->next = NULL;
    l->state = LAUNCH_FINISHED;
}

/* The workgroup before which a finished one is taken out; answers whether a launch can go on. */
static void end_group(struct engine *e, struct workgroup *g)
{
    struct launch *l = g->launch;
    struct workgroup **link = &e->groups;
    while (*link != g)
        link = &(*link)->next;
    *link = g->next;
    if (e->last_group == &g->next)
        e->last_group = link;
    workgroup_free(&e->spare, g);
    l->live_groups--;
    l->ended_groups++;
    if (l->ended_groups == total_groups(l))
        remove_launch(e, l);
}

/* When every wave that has not ended waits at the barrier, all go on. */
static void try_release(struct workgroup *g)
{
    if (!g->at_barrier || g->at_barrier + g->ended != g->waves)
        return;
    for (uint32_t k = 0; k < g->waves; k++)
        if (g->wave[k].state == WAVE_AT_BARRIER)
            g->wave[k].state = WAVE_READY;
    g->at_barrier = 0;
}

/* One turn of a wave. */
static uint64_t run_wave(struct engine *e, struct wave *w, uint64_t quantum)
{
    const segment *segments = w->launch->code->segments;
    const uint32_t *lengths = w->launch->code->lengths;
    struct segment_counts *counts = w->launch->counts;
    const struct counters *total = &w->launch->counters;
    uint64_t executed = 0;
    uint32_t at = w->segment;
    do {
        struct segment_counts *mine = &counts[at];
        const struct counters before = *total;
        executed += lengths[at];
        const uint32_t answer = segments[at](w);
        mine->executions++;
        mine->global_read += total->global_read - before.global_read;
        mine->global_written += total->global_written - before.global_written;
        mine->lds_read += total->lds_read - before.lds_read;
        mine->lds_written += total->lds_written - before.lds_written;
        at = answer & ~STOP_MASK;
        if (!(answer & STOP_MASK))
            continue;
        struct workgroup *g = w->group;
        if (answer & STOP_YIELD) {
            w->launch->counters.yields++;
        } else if (answer & STOP_BARRIER) {
            w->state = WAVE_AT_BARRIER;
            g->at_barrier++;
            try_release(g);
        } else if (answer & STOP_END) {
            w->state = WAVE_ENDED;
            g->ended++;
            e->progress++;
            try_release(g);
        } else {
            e->faulty = w;
        }
        break;
    } while (executed < quantum);
    w->segment = at;
    w->executed += executed;
    w->launch->counters.instructions += executed;
    w->launch->counters.turns++;
    e->clock += executed;
    return executed;
}

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 31) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31;
}

/* Whether a wave stands still for a while: turns of random lengths alone would let all waves progress at
 * about the same pace. One in four waves rests, for 8 rounds and for 128. */
static int is_resting(const struct engine *e, const struct wave *w)
{
    const uint64_t own = mixed(e->options.seed ^ (uint64_t)w->serial << 32);
    return !(mixed(own ^ e->time >> 3) & 3) || !(mixed(~own ^ e->time >> 7) & 3);
}

static uint64_t turn_of(struct engine *e, const struct wave *w)
{
    const uint64_t quantum = e->options.quantum;
    if (!e->options.is_random)
        return quantum;
    if (is_resting(e, w))
        return 0;
    const uint64_t r = next_random(e);
    return 1 + (r >> 8) % quantum * ((r & 15) == 0 ? 16 : 1);
}

static int is_deadlocked(struct engine *e)
{
    if (e->progress != e->seen) {
        e->seen = e->progress;
        e->still_since = e->clock;
        return 0;
    }
    if (e->ready_waves == 0)
        return 1;
    return e->clock - e->still_since > e->options.patience * (e->ready_waves + 50);
}

enum outcome engine_run(struct engine *e, uint64_t budget)
{
    const uint64_t end = e->clock + budget;
    if (!admit(e))
        return ENGINE_MEMORY;
    while (e->launches) {
        struct workgroup *g = e->groups;
        e->ready_waves = 0;
        e->time++;
        while (g) {
            struct workgroup *next = g->next;
            const uint32_t first = e->options.is_random ? (uint32_t)(next_random(e) % g->waves) : 0;
            for (uint32_t k = 0; k < g->waves; k++) {
                struct wave *w = &g->wave[(first + k) % g->waves];
                if (w->state != WAVE_READY)
                    continue;
                e->ready_waves++;
                const uint64_t quantum = turn_of(e, w);
                if (quantum)
                    run_wave(e, w, quantum);
                if (e->faulty)
                    return ENGINE_FAULT;
            }
            if (g->ended == g->waves)
                end_group(e, g);
            g = next;
        }
        if (!admit(e))
            return ENGINE_MEMORY;
        if (e->launches && is_deadlocked(e))
            return ENGINE_DEADLOCK;
        if (e->clock >= end)
            return e->launches ? ENGINE_MORE : ENGINE_IDLE;
    }
    return ENGINE_IDLE;
}

const struct wave *engine_fault(const struct engine *e)
{
    return e->faulty;
}

const struct fault *engine_fault_of(const struct wave *w)
{
    return &w->fault;
}

const struct wave *engine_next_wave(const struct engine *e, const struct wave *after)
{
    const struct workgroup *g = after ? after->group : e->groups;
    uint32_t k = after ? after->number + 1 : 0;
    for (; g; g = g->next, k = 0)
        for (; k < g->waves; k++)
            if (g->wave[k].state != WAVE_ENDED)
                return &g->wave[k];
    return NULL;
}

void engine_describe(const struct wave *w, uint32_t group[3], uint32_t *number, uint32_t *at,
                     uint32_t *state, uint32_t *device, const struct launch **launch)
{
    memcpy(group, w->group->id, sizeof w->group->id);
    *number = w->number;
    *at = w->segment;
    *state = w->state;
    *device = w->launch->device;
    *launch = w->launch;
}

uint64_t engine_clock(const struct engine *e)
{
    return e->clock;
}
