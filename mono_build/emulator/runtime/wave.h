/* The state of a wave, its workgroup and its launch, as generated code and the scheduler see them. */
#ifndef MONO_EMULATOR_WAVE_H
#define MONO_EMULATOR_WAVE_H

#include <stddef.h>
#include <stdint.h>

#define LANES 64
#define VCC 106
#define M0 124
#define EXEC 126
/* Rows that an instruction may use for operands that are no vector registers. */
#define TEMPORARIES 40

/* One register of all lanes. A register pair is two rows that follow each other. */
typedef uint32_t row[LANES];

/* What a segment answers: the number of the next one, and why the wave stops before it. */
#define STOP_MASK 0xF0000000u
#define STOP_YIELD 0x10000000u
#define STOP_BARRIER 0x20000000u
#define STOP_END 0x40000000u
#define STOP_FAULT 0x80000000u

enum fault_kind {
    FAULT_NONE = 0,
    FAULT_GLOBAL = 1,    /* a global or buffer access outside of every allocation */
    FAULT_LDS = 2,       /* an LDS access outside of the workgroup's LDS */
    FAULT_SCRATCH = 3,   /* a scratch access outside of the lane's scratch */
    FAULT_UNKNOWN = 4,   /* an instruction that is not modelled */
    FAULT_TARGET = 5,    /* a jump to where no instruction begins */
    FAULT_TRAP = 6       /* s_trap */
};

struct fault {
    uint32_t kind;
    uint32_t instruction; /* its index in the decoded code object */
    uint32_t lane;
    uint32_t bytes;
    uint32_t is_write;
    uint32_t reserved;
    uint64_t address;
};

struct range {
    uint64_t start; /* 0 and 0 when unused */
    uint64_t end;
};

/* All live allocations, sorted; the driver writes it, and only while nothing runs. */
struct memory_map {
    const struct range *ranges;
    uint64_t count;
};

struct wave;
typedef uint32_t (*segment)(struct wave *);

/* What a translated code object offers: its entry point `mono_kernel_code` returns one. */
struct kernel_code {
    const segment *segments;
    const uint32_t *lengths; /* instructions a segment */
    uint32_t count;
    uint32_t sites;
};

struct counters {
    uint64_t instructions;
    uint64_t global_read; /* bytes, of active lanes */
    uint64_t global_written;
    uint64_t lds_read;
    uint64_t lds_written;
    uint64_t yields; /* s_sleep */
    uint64_t turns;
};

/* What one segment of the code did in all its executions. */
struct segment_counts {
    uint64_t executions;
    uint64_t global_read; /* bytes, as in `struct counters` */
    uint64_t global_written;
    uint64_t lds_read;
    uint64_t lds_written;
};

struct launch {
    /* Filled by the driver. */
    const struct kernel_code *code;
    uint64_t kernargs;    /* address of the copied argument buffer */
    uint64_t code_base;   /* what to add to a code object's address */
    const struct memory_map *memory;
    uint32_t grid[3];     /* workgroups */
    uint32_t block[3];    /* work-items */
    uint32_t lds_size;    /* bytes */
    uint32_t rows;        /* vector registers to keep a wave */
    uint32_t scratch_size;/* bytes a work-item */
    uint32_t entry;       /* segment to begin with */
    uint32_t user_sgprs;  /* how many scalar registers are set before the workgroup's numbers */
    uint32_t kernarg_sgpr;/* where the argument pointer goes, or 0xFFFFFFFF */
    uint32_t dispatch_sgpr; /* where the dispatch packet's address goes, or 0xFFFFFFFF */
    uint32_t preload_sgpr;  /* first register of preloaded arguments */
    uint32_t preload_count; /* how many of them; their words */
    uint32_t preload_offset;/* first word of the arguments */
    uint64_t dispatch;    /* address of the dispatch packet */
    uint32_t group_ids;   /* bit 0: x, bit 1: y, bit 2: z, bit 3: group info */
    uint32_t stream;      /* launches of one stream run one after another */
    uint32_t device;
    uint32_t capacity;    /* workgroups that the device holds at once */
    uint32_t mode;        /* MODE at the start: rounding, denormals */
    struct segment_counts *counts; /* by segment */
    struct range *sites;  /* the last allocation that each access site met */
    /* Kept by the scheduler. */
    struct counters counters;
    uint64_t next_group;
    uint64_t live_groups;
    uint64_t ended_groups;
    uint32_t state;       /* 0 waiting, 1 running, 2 finished, 3 stopped by a fault */
    struct launch *next;
};

struct workgroup {
    struct launch *launch;
    uint32_t id[3];
    uint32_t waves;
    uint32_t at_barrier;
    uint32_t ended;
    uint8_t *lds;
    uint8_t *scratch;
    struct wave *wave; /* array */
    row *registers;
    struct block *block; /* the memory of all these */
    struct workgroup *next;
};

enum wave_state { WAVE_READY = 0, WAVE_AT_BARRIER = 1, WAVE_ENDED = 2 };

struct wave {
    uint32_t s[128];        /* s[106:107] is VCC, s[124] M0, s[126:127] EXEC */
    uint32_t m[LANES];      /* EXEC by lane: 0 or all ones; kept up to date by `exec_changed` */
    row t[TEMPORARIES];
    row *v;                 /* vector registers, then accumulation registers */
    uint8_t *lds;
    uint8_t *scratch;       /* of lane 0; the next lane's follows */
    struct workgroup *group;
    struct launch *launch;
    struct range *sites;
    const struct memory_map *memory;
    uint64_t *progress;     /* counts what changes memory */
    const uint64_t *clock;
    uint64_t executed;
    uint32_t lds_size;
    uint32_t scratch_size;
    uint32_t scc;
    uint32_t mode;          /* the MODE register */
    uint32_t segment;       /* where to go on */
    uint32_t state;
    uint32_t number;        /* in its workgroup */
    uint32_t serial;        /* of all waves that have started */
    struct fault fault;
};

static inline uint64_t pair(const uint32_t *s)
{
    return (uint64_t)s[1] << 32 | s[0];
}

static inline void set_pair(uint32_t *s, uint64_t value)
{
    s[0] = (uint32_t)value;
    s[1] = (uint32_t)(value >> 32);
}

static inline uint64_t exec_of(const struct wave *w)
{
    return pair(w->s + EXEC);
}

#endif
