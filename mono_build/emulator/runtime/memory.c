/* Checked accesses to global memory, buffers, scratch and LDS. */
#include "memory.h"

#include <string.h>

#define EACH _Pragma("GCC ivdep") for (int i = 0; i < LANES; i++)
#define INLINE static inline __attribute__((always_inline))
#define LIKELY(x) __builtin_expect(!!(x), 1)

static int fault(struct wave *w, uint32_t kind, int lane, uint64_t address, uint32_t bytes, int is_write)
{
    w->fault.kind = kind;
    w->fault.lane = (uint32_t)lane;
    w->fault.address = address;
    w->fault.bytes = bytes;
    w->fault.is_write = (uint32_t)is_write;
    return 1;
}

int find_range(const struct memory_map *map, struct range *site, uint64_t address, uint64_t bytes)
{
    uint64_t low = 0, high = map->count; /* the last range that starts at or before the address */
    while (low < high) {
        const uint64_t middle = (low + high) / 2;
        if (map->ranges[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return 0;
    const struct range *found = &map->ranges[low - 1];
    if (address >= found->end || found->end - address < bytes)
        return 0;
    *site = *found;
    return 1;
}

INLINE int is_inside(const struct range *site, uint64_t address, uint64_t bytes)
{
    return address >= site->start && address + bytes <= site->end && address + bytes >= address;
}

/* Check the lanes that `on` has set; 1 after a fault. */
static int check_lanes(struct wave *w, struct range *site, const uint64_t *address, const uint32_t *on,
                       uint32_t bytes, int is_write)
{
    const uint64_t start = site->start, size = site->end - start;
    uint32_t bad = 0;
    if (LIKELY(size >= bytes))
        EACH bad |= on[i] & -(uint32_t)(address[i] - start > size - bytes);
    else
        EACH bad |= on[i];
    if (LIKELY(!bad))
        return 0;
    struct range last = *site;
    for (int i = 0; i < LANES; i++)
        if (on[i] && !is_inside(&last, address[i], bytes) &&
            !find_range(w->memory, &last, address[i], bytes))
            return fault(w, FAULT_GLOBAL, i, address[i], bytes, is_write);
    *site = last;
    return 0;
}

int scalar_load(struct wave *w, struct range *site, uint32_t *d, uint64_t address, uint32_t count)
{
    if (!is_inside(site, address, 4 * count) && !find_range(w->memory, site, address, 4 * count))
        return fault(w, FAULT_GLOBAL, 0, address, 4 * count, 0);
    memcpy(d, (const void *)(uintptr_t)address, 4 * count);
    w->launch->counters.global_read += 4 * count;
    return 0;
}

int scalar_buffer_load(struct wave *w, struct range *site, uint32_t *d, const uint32_t *resource,
                       uint32_t offset, uint32_t count)
{
    const uint64_t base = (pair(resource) & 0xFFFFFFFFFFFFull) + (offset & ~3u);
    const uint32_t stride = resource[1] >> 16 & 0x3FFF;
    const uint64_t size = stride ? (uint64_t)stride * resource[2] : resource[2];
    for (uint32_t k = 0; k < count; k++) {
        if ((uint64_t)offset + 4 * k + 4 > size)
            d[k] = 0;
        else if (scalar_load(w, site, d + k, base + 4 * k, 1))
            return 1;
    }
    return 0;
}

INLINE uint32_t bytes_of(enum width width)
{
    switch (width) {
    case WIDTH_U8: case WIDTH_I8: case WIDTH_U8_LOW: case WIDTH_U8_HIGH: case WIDTH_I8_LOW:
    case WIDTH_I8_HIGH:
        return 1;
    case WIDTH_U16: case WIDTH_I16: case WIDTH_16_LOW: case WIDTH_16_HIGH:
        return 2;
    default:
        return 4 * (uint32_t)(width - WIDTH_1 + 1);
    }
}

/* One lane's load; `d` is the lane's word of the first row. */
INLINE void load_lane(enum width width, uint32_t *d, const uint8_t *p)
{
    uint16_t half;
    switch (width) {
    case WIDTH_U8: *d = *p; return;
    case WIDTH_I8: *d = (uint32_t)(int32_t)(int8_t)*p; return;
    case WIDTH_U8_LOW: *d = (*d & 0xFFFF0000u) | *p; return;
    case WIDTH_U8_HIGH: *d = (*d & 0xFFFFu) | (uint32_t)*p << 16; return;
    case WIDTH_I8_LOW: *d = (*d & 0xFFFF0000u) | (uint16_t)(int8_t)*p; return;
    case WIDTH_I8_HIGH: *d = (*d & 0xFFFFu) | (uint32_t)(uint16_t)(int8_t)*p << 16; return;
    case WIDTH_U16: memcpy(&half, p, 2); *d = half; return;
    case WIDTH_I16: memcpy(&half, p, 2); *d = (uint32_t)(int32_t)(int16_t)half; return;
    case WIDTH_16_LOW: memcpy(&half, p, 2); *d = (*d & 0xFFFF0000u) | half; return;
    case WIDTH_16_HIGH: memcpy(&half, p, 2); *d = (*d & 0xFFFFu) | (uint32_t)half << 16; return;
    default:
        for (int k = 0; k <= (int)(width - WIDTH_1); k++)
            memcpy(d + k * LANES, p + 4 * k, 4);
    }
}

/* One lane's store; answers whether memory changed. */
INLINE uint32_t store_lane(enum width width, const uint32_t *s, uint8_t *p)
{
    uint32_t changed = 0;
    if (bytes_of(width) == 1) {
        const uint8_t x = (uint8_t)(width == WIDTH_U8_HIGH ? *s >> 16 : *s);
        changed = *p ^ x;
        *p = x;
    } else if (bytes_of(width) == 2) {
        const uint16_t x = (uint16_t)(width == WIDTH_16_HIGH ? *s >> 16 : *s);
        uint16_t old;
        memcpy(&old, p, 2);
        changed = old ^ x;
        memcpy(p, &x, 2);
    } else {
        for (int k = 0; k <= (int)(width - WIDTH_1); k++) {
            uint32_t old;
            memcpy(&old, p + 4 * k, 4);
            changed |= old ^ s[k * LANES];
            memcpy(p + 4 * k, s + k * LANES, 4);
        }
    }
    return changed;
}

/* `WIDTHS(call)` runs `call` with `width` a constant, so that the loops over lanes are made for each. */
#define CASE(value, call) case value: { const enum width fixed = value; call; break; }
#define WIDTHS(call)                                                                        \
    switch (width) {                                                                        \
    CASE(WIDTH_U8, call) CASE(WIDTH_I8, call) CASE(WIDTH_U16, call) CASE(WIDTH_I16, call)   \
    CASE(WIDTH_U8_LOW, call) CASE(WIDTH_U8_HIGH, call) CASE(WIDTH_I8_LOW, call)             \
    CASE(WIDTH_I8_HIGH, call) CASE(WIDTH_16_LOW, call) CASE(WIDTH_16_HIGH, call)            \
    CASE(WIDTH_1, call) CASE(WIDTH_2, call) CASE(WIDTH_3, call) CASE(WIDTH_4, call)         \
    }

static uint32_t count_lanes(const uint32_t *on)
{
    uint32_t lanes = 0;
    EACH lanes += on[i] & 1;
    return lanes;
}

typedef uint32_t four __attribute__((vector_size(16)));

/* Words of 64 lanes into rows. Four lanes at a time are loaded whole and turned; pieces of 16 bytes all
 * the way, because a wider load from what narrower stores have just written would stall. */
INLINE void gather_words(int words, uint32_t *d, const uint64_t *from, const uint32_t *on)
{
    for (int i = 0; i < LANES; i += 4) {
        four lane[4], column[4];
        for (int k = 0; k < 4; k++) {
            lane[k] = (four){0};
            memcpy(&lane[k], (const void *)(uintptr_t)from[i + k], 4 * (size_t)words);
        }
        const four low01 = __builtin_shufflevector(lane[0], lane[1], 0, 4, 1, 5);
        const four low23 = __builtin_shufflevector(lane[2], lane[3], 0, 4, 1, 5);
        const four high01 = __builtin_shufflevector(lane[0], lane[1], 2, 6, 3, 7);
        const four high23 = __builtin_shufflevector(lane[2], lane[3], 2, 6, 3, 7);
        column[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
        column[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
        column[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
        column[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
        four taken;
        memcpy(&taken, &on[i], sizeof taken);
        for (int k = 0; k < words; k++) {
            four old;
            memcpy(&old, &d[k * LANES + i], sizeof old);
            column[k] = (column[k] & taken) | (old & ~taken);
            memcpy(&d[k * LANES + i], &column[k], sizeof column[k]);
        }
    }
}

static void load_words(int words, uint32_t *d, const uint64_t *address, const uint32_t *on)
{
    static const uint32_t nothing[4];
    uint64_t from[LANES];
    /* Lanes that are off read zeros, which are then not taken. */
    EACH from[i] = on[i] ? address[i] : (uint64_t)(uintptr_t)nothing;
    switch (words) {
    case 1: gather_words(1, d, from, on); break;
    case 2: gather_words(2, d, from, on); break;
    case 3: gather_words(3, d, from, on); break;
    default: gather_words(4, d, from, on);
    }
}

static void load_global_lanes(enum width width, uint32_t *d, const uint64_t *address, const uint32_t *on)
{
    if (width >= WIDTH_1) {
        load_words((int)(width - WIDTH_1) + 1, d, address, on);
        return;
    }
    WIDTHS(for (int i = 0; i < LANES; i++)
               if (on[i])
                   load_lane(fixed, d + i, (const uint8_t *)(uintptr_t)address[i]))
}

static uint32_t store_global_lanes(enum width width, const uint32_t *s, const uint64_t *address,
                                   const uint32_t *on)
{
    uint32_t changed = 0;
    WIDTHS(for (int i = 0; i < LANES; i++)
               if (on[i])
                   changed |= store_lane(fixed, s + i, (uint8_t *)(uintptr_t)address[i]))
    return changed;
}

static void global_addresses(uint64_t *to, const uint32_t *address, int is_wide, uint64_t base,
                             int32_t offset)
{
    const uint64_t start = base + (uint64_t)(int64_t)offset;
    if (!address)
        EACH to[i] = start;
    else if (is_wide)
        EACH to[i] = ((uint64_t)address[LANES + i] << 32 | address[i]) + start;
    else
        EACH to[i] = address[i] + start;
}

int global_load(struct wave *w, struct range *site, enum width width, uint32_t *d,
                const uint32_t *address, int is_wide, uint64_t base, int32_t offset)
{
    uint64_t at[LANES];
    global_addresses(at, address, is_wide, base, offset);
    if (check_lanes(w, site, at, w->m, bytes_of(width), 0))
        return 1;
    load_global_lanes(width, d, at, w->m);
    w->launch->counters.global_read += bytes_of(width) * count_lanes(w->m);
    return 0;
}

int global_store(struct wave *w, struct range *site, enum width width, const uint32_t *data,
                 const uint32_t *address, int is_wide, uint64_t base, int32_t offset)
{
    uint64_t at[LANES];
    global_addresses(at, address, is_wide, base, offset);
    if (check_lanes(w, site, at, w->m, bytes_of(width), 1))
        return 1;
    if (store_global_lanes(width, data, at, w->m))
        ++*w->progress;
    w->launch->counters.global_written += bytes_of(width) * count_lanes(w->m);
    return 0;
}

/* Buffers (CDNA3 ISA, "Buffer addressing" and "Range checking"). The swizzled layout is not modelled: it
 * faults. `in_range` gets the lanes whose first `bytes` bytes the descriptor covers. */
struct buffer_lanes {
    uint64_t address[LANES];
    uint64_t left[LANES]; /* bytes up to the end of the buffer (of the record for structured ones) */
    uint32_t on[LANES];
};

static int buffer_addresses(struct wave *w, struct buffer_lanes *to, const uint32_t *resource,
                            const uint32_t *index, const uint32_t *offset_row, uint32_t soffset,
                            uint32_t offset)
{
    const uint64_t base = (pair(resource) & 0xFFFFFFFFFFFFull) + soffset;
    const uint32_t stride = resource[1] >> 16 & 0x3FFF, records = resource[2];
    if (resource[1] >> 31)
        return fault(w, FAULT_UNKNOWN, 0, base, 0, 0); /* swizzle enabled */
    /* add_tid_enable would put the lane's number into the index. */
    if (resource[3] >> 23 & 1)
        return fault(w, FAULT_UNKNOWN, 0, base, 0, 0);
    const uint64_t room = records > soffset ? records - soffset : 0;
    EACH
    {
        const uint32_t lane_offset = offset + (offset_row ? offset_row[i] : 0);
        const uint32_t lane_index = index ? index[i] : 0;
        to->address[i] = base + lane_offset + (uint64_t)stride * lane_index;
        if (stride) /* structured: the index counts records */
            to->left[i] = lane_index < records ? (lane_offset < stride ? stride - lane_offset : 0) : 0;
        else
            to->left[i] = lane_offset < room ? room - lane_offset : 0;
    }
    return 0;
}

static void buffer_on(const struct wave *w, struct buffer_lanes *lanes, uint32_t bytes)
{
    EACH lanes->on[i] = w->m[i] & -(uint32_t)(lanes->left[i] >= bytes);
}

int buffer_load(struct wave *w, struct range *site, enum width width, uint32_t *d,
                const uint32_t *resource, const uint32_t *index, const uint32_t *offset_row,
                uint32_t soffset, uint32_t offset)
{
    struct buffer_lanes lanes;
    const uint32_t bytes = bytes_of(width);
    if (buffer_addresses(w, &lanes, resource, index, offset_row, soffset, offset))
        return 1;
    buffer_on(w, &lanes, bytes);
    if (check_lanes(w, site, lanes.address, lanes.on, bytes, 0))
        return 1;
    uint32_t outside = 0;
    EACH outside |= w->m[i] & ~lanes.on[i];
    load_global_lanes(width, d, lanes.address, lanes.on);
    w->launch->counters.global_read += bytes * count_lanes(lanes.on);
    if (LIKELY(!outside))
        return 0;
    static const uint8_t zeros[16];
    for (int i = 0; i < LANES; i++) {
        if (!w->m[i] || lanes.on[i])
            continue;
        if (width < WIDTH_1) {
            load_lane(width, d + i, zeros);
            continue;
        }
        /* Raw buffers check every word by itself. */
        for (uint32_t k = 0; k < bytes / 4; k++) {
            uint32_t word = 0;
            if (lanes.left[i] >= 4 * k + 4) {
                if (!find_range(w->memory, site, lanes.address[i] + 4 * k, 4))
                    return fault(w, FAULT_GLOBAL, i, lanes.address[i] + 4 * k, 4, 0);
                memcpy(&word, (const void *)(uintptr_t)(lanes.address[i] + 4 * k), 4);
            }
            d[k * LANES + i] = word;
        }
    }
    return 0;
}

int buffer_store(struct wave *w, struct range *site, enum width width, const uint32_t *data,
                 const uint32_t *resource, const uint32_t *index, const uint32_t *offset_row,
                 uint32_t soffset, uint32_t offset)
{
    struct buffer_lanes lanes;
    const uint32_t bytes = bytes_of(width);
    if (buffer_addresses(w, &lanes, resource, index, offset_row, soffset, offset))
        return 1;
    buffer_on(w, &lanes, bytes);
    if (check_lanes(w, site, lanes.address, lanes.on, bytes, 1))
        return 1;
    uint32_t changed = store_global_lanes(width, data, lanes.address, lanes.on);
    w->launch->counters.global_written += bytes * count_lanes(lanes.on);
    for (int i = 0; width > WIDTH_1 && i < LANES; i++) {
        if (!w->m[i] || lanes.on[i])
            continue;
        for (uint32_t k = 0; k < bytes / 4 && lanes.left[i] >= 4 * k + 4; k++) {
            if (!find_range(w->memory, site, lanes.address[i] + 4 * k, 4))
                return fault(w, FAULT_GLOBAL, i, lanes.address[i] + 4 * k, 4, 1);
            changed |= store_lane(WIDTH_1, data + k * LANES + i,
                                  (uint8_t *)(uintptr_t)(lanes.address[i] + 4 * k));
        }
    }
    if (changed)
        ++*w->progress;
    return 0;
}

/* Scratch and LDS: offsets into one piece of memory. */
static int check_offsets(struct wave *w, const uint64_t *at, uint32_t bytes, uint64_t size, uint32_t kind,
                         int is_write)
{
    uint32_t bad = 0;
    EACH bad |= w->m[i] & -(uint32_t)(at[i] + bytes > size);
    if (LIKELY(!bad))
        return 0;
    for (int i = 0; i < LANES; i++)
        if (w->m[i] && at[i] + bytes > size)
            return fault(w, kind, i, at[i], bytes, is_write);
    return 0;
}

static int scratch_offsets(struct wave *w, uint64_t *at, enum width width, const uint32_t *address,
                           uint32_t offset, int is_write)
{
    EACH at[i] = (uint32_t)((address ? address[i] : 0) + offset);
    if (check_offsets(w, at, bytes_of(width), w->scratch_size, FAULT_SCRATCH, is_write))
        return 1;
    EACH at[i] += (uint64_t)(uintptr_t)w->scratch + (uint64_t)i * w->scratch_size;
    return 0;
}

int scratch_load(struct wave *w, enum width width, uint32_t *d, const uint32_t *address, uint32_t offset)
{
    uint64_t at[LANES];
    if (scratch_offsets(w, at, width, address, offset, 0))
        return 1;
    load_global_lanes(width, d, at, w->m);
    return 0;
}

int scratch_store(struct wave *w, enum width width, const uint32_t *data, const uint32_t *address,
                  uint32_t offset)
{
    uint64_t at[LANES];
    if (scratch_offsets(w, at, width, address, offset, 1))
        return 1;
    (void)store_global_lanes(width, data, at, w->m);
    return 0;
}

static int lds_offsets(struct wave *w, uint64_t *at, const uint32_t *address, uint32_t offset,
                       uint32_t bytes, int is_write)
{
    EACH at[i] = (uint64_t)address[i] + offset;
    if (check_offsets(w, at, bytes, w->lds_size, FAULT_LDS, is_write))
        return 1;
    EACH at[i] += (uint64_t)(uintptr_t)w->lds;
    if (is_write)
        w->launch->counters.lds_written += bytes * count_lanes(w->m);
    else
        w->launch->counters.lds_read += bytes * count_lanes(w->m);
    return 0;
}

int lds_load(struct wave *w, enum width width, uint32_t *d, const uint32_t *address, uint32_t offset)
{
    uint64_t at[LANES];
    if (lds_offsets(w, at, address, offset, bytes_of(width), 0))
        return 1;
    load_global_lanes(width, d, at, w->m);
    return 0;
}

int lds_store(struct wave *w, enum width width, const uint32_t *data, const uint32_t *address,
              uint32_t offset)
{
    uint64_t at[LANES];
    if (lds_offsets(w, at, address, offset, bytes_of(width), 1))
        return 1;
    if (store_global_lanes(width, data, at, w->m))
        ++*w->progress;
    return 0;
}

int lds_load2(struct wave *w, int words, uint32_t *d, const uint32_t *address, uint32_t first,
              uint32_t second)
{
    uint64_t at[2][LANES];
    const enum width width = words == 1 ? WIDTH_1 : WIDTH_2;
    if (lds_offsets(w, at[0], address, first, 4 * (uint32_t)words, 0) ||
        lds_offsets(w, at[1], address, second, 4 * (uint32_t)words, 0))
        return 1;
    load_global_lanes(width, d, at[0], w->m);
    load_global_lanes(width, d + words * LANES, at[1], w->m);
    return 0;
}

int lds_store2(struct wave *w, int words, const uint32_t *data0, const uint32_t *data1,
               const uint32_t *address, uint32_t first, uint32_t second)
{
    uint64_t at[2][LANES];
    const enum width width = words == 1 ? WIDTH_1 : WIDTH_2;
    if (lds_offsets(w, at[0], address, first, 4 * (uint32_t)words, 1) ||
        lds_offsets(w, at[1], address, second, 4 * (uint32_t)words, 1))
        return 1;
    if (store_global_lanes(width, data0, at[0], w->m) | store_global_lanes(width, data1, at[1], w->m))
        ++*w->progress;
    return 0;
}

/* Lanes of a group of 16 read 8 bytes each; lane k then gets element k of the rows that they read:
 * with b elements of `bits` bits a lane, lanes j * 16 / ... of the group hold the rows in turn. */
int lds_load_transposed(struct wave *w, int bits, uint32_t *d, const uint32_t *address, uint32_t offset)
{
    uint64_t at[LANES], value[LANES];
    if (lds_offsets(w, at, address, offset, 8, 0))
        return 1;
    for (int i = 0; i < LANES; i++) {
        value[i] = 0;
        if (w->m[i])
            memcpy(&value[i], (const void *)(uintptr_t)at[i], 8);
    }
    const int elements = 64 / bits, per_row = 16 / elements;
    for (int i = 0; i < LANES; i++) {
        if (!w->m[i])
            continue;
        const int group = i & ~15, k = i & 15;
        uint64_t r = 0;
        /* Row e of the tile lies in `per_row` lanes that follow each other. */
        for (int e = 0; e < elements; e++) {
            const uint64_t word = value[group + e * per_row + k / elements];
            r |= (word >> (k % elements * bits) & ((1ull << bits) - 1)) << (e * bits);
        }
        d[i] = (uint32_t)r;
        d[LANES + i] = (uint32_t)(r >> 32);
    }
    return 0;
}

/* Atomics. Lanes act one after another, from lane 0. */
static float f32_of(uint64_t x)
{
    const uint32_t bits = (uint32_t)x;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static uint64_t of_f32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static double f64_of(uint64_t x)
{
    double f;
    memcpy(&f, &x, 8);
    return f;
}

static uint64_t of_f64(double f)
{
    uint64_t bits;
    memcpy(&bits, &f, 8);
    return bits;
}

static uint32_t add_bf16(uint32_t x, uint32_t y)
{
    const uint32_t sum = (uint32_t)of_f32(f32_of(x << 16) + f32_of(y << 16));
    if ((sum & 0x7FFFFFFFu) > 0x7F800000u)
        return (sum >> 16) | 0x40;
    return (sum + 0x7FFF + (sum >> 16 & 1)) >> 16;
}

static uint32_t add_f16(uint32_t x, uint32_t y)
{
    const uint16_t xs = (uint16_t)x, ys = (uint16_t)y;
    _Float16 fx, fy;
    memcpy(&fx, &xs, 2);
    memcpy(&fy, &ys, 2);
    const _Float16 sum = fx + fy;
    uint16_t bits;
    memcpy(&bits, &sum, 2);
    return bits;
}

/* The new value; `words` is 1 or 2, values are zero-extended. */
static uint64_t combined(enum atomic operation, int words, uint64_t old, uint64_t x, uint64_t compare)
{
    const int up = words == 1 ? 32 : 0;
    const int64_t so = (int64_t)(old << up), sx = (int64_t)(x << up);
    switch (operation) {
    case ATOMIC_SWAP: return x;
    case ATOMIC_CMPSWAP: return old == compare ? x : old;
    case ATOMIC_ADD: return old + x;
    case ATOMIC_SUB: return old - x;
    case ATOMIC_RSUB: return x - old;
    case ATOMIC_SMIN: return sx < so ? x : old;
    case ATOMIC_SMAX: return sx > so ? x : old;
    case ATOMIC_UMIN: return x < old ? x : old;
    case ATOMIC_UMAX: return x > old ? x : old;
    case ATOMIC_AND: return old & x;
    case ATOMIC_OR: return old | x;
    case ATOMIC_XOR: return old ^ x;
    case ATOMIC_INC: return old >= x ? 0 : old + 1;
    case ATOMIC_DEC: return old == 0 || old > x ? x : old - 1;
    case ATOMIC_ADD_F32: return of_f32(f32_of(old) + f32_of(x));
    case ATOMIC_MIN_F32: return f32_of(x) < f32_of(old) ? x : old;
    case ATOMIC_MAX_F32: return f32_of(x) > f32_of(old) ? x : old;
    case ATOMIC_ADD_F64: return of_f64(f64_of(old) + f64_of(x));
    case ATOMIC_PK_ADD_F16:
        return add_f16((uint32_t)old, (uint32_t)x) |
               (uint64_t)add_f16((uint32_t)old >> 16, (uint32_t)x >> 16) << 16;
    case ATOMIC_PK_ADD_BF16:
        return add_bf16((uint32_t)old & 0xFFFF, (uint32_t)x & 0xFFFF) |
               (uint64_t)add_bf16((uint32_t)old >> 16, (uint32_t)x >> 16) << 16;
    }
    return old;
}

static uint64_t word_of(const uint32_t *rows, int words, int lane)
{
    return words == 1 ? rows[lane] : (uint64_t)rows[LANES + lane] << 32 | rows[lane];
}

static void act(struct wave *w, enum atomic operation, int words, uint32_t *d, const uint32_t *data,
                const uint32_t *compare, const uint64_t *at, const uint32_t *on)
{
    int changed = 0;
    for (int i = 0; i < LANES; i++) {
        if (!on[i])
            continue;
        void *p = (void *)(uintptr_t)at[i];
        uint64_t old = 0;
        memcpy(&old, p, 4 * (size_t)words);
        const uint64_t x = word_of(data, words, i);
        const uint64_t y = compare ? word_of(compare, words, i) : 0;
        uint64_t value = combined(operation, words, old, x, y);
        if (words == 1)
            value &= 0xFFFFFFFFu;
        changed |= value != old;
        memcpy(p, &value, 4 * (size_t)words);
        if (d) {
            d[i] = (uint32_t)old;
            if (words == 2)
                d[LANES + i] = (uint32_t)(old >> 32);
        }
    }
    if (changed)
        ++*w->progress;
}

/* The comparand follows the new value. */
static const uint32_t *comparand(enum atomic operation, int words, const uint32_t *data)
{
    return operation == ATOMIC_CMPSWAP ? data + words * LANES : NULL;
}

static void count_atomic(struct wave *w, int words, const uint32_t *on)
{
    const uint64_t bytes = 4 * (uint64_t)words * count_lanes(on);
    w->launch->counters.global_read += bytes;
    w->launch->counters.global_written += bytes;
}

int global_atomic(struct wave *w, struct range *site, enum atomic operation, int words, uint32_t *d,
                  const uint32_t *data, const uint32_t *address, int is_wide, uint64_t base,
                  int32_t offset)
{
    uint64_t at[LANES];
    global_addresses(at, address, is_wide, base, offset);
    if (check_lanes(w, site, at, w->m, 4 * (uint32_t)words, 1))
        return 1;
    act(w, operation, words, d, data, comparand(operation, words, data), at, w->m);
    count_atomic(w, words, w->m);
    return 0;
}

int buffer_atomic(struct wave *w, struct range *site, enum atomic operation, int words, uint32_t *d,
                  const uint32_t *data, const uint32_t *resource, const uint32_t *index,
                  const uint32_t *offset_row, uint32_t soffset, uint32_t offset)
{
    struct buffer_lanes lanes;
    if (buffer_addresses(w, &lanes, resource, index, offset_row, soffset, offset))
        return 1;
    buffer_on(w, &lanes, 4 * (uint32_t)words);
    if (check_lanes(w, site, lanes.address, lanes.on, 4 * (uint32_t)words, 1))
        return 1;
    row outside;
    EACH outside[i] = w->m[i] & ~lanes.on[i];
    act(w, operation, words, d, data, comparand(operation, words, data), lanes.address, lanes.on);
    for (int k = 0; d && k < words; k++) /* out of range: nothing happens, the old value reads as 0 */
        EACH d[k * LANES + i] = outside[i] ? 0 : d[k * LANES + i];
    count_atomic(w, words, lanes.on);
    return 0;
}

int lds_atomic(struct wave *w, enum atomic operation, int words, uint32_t *d, const uint32_t *data,
               const uint32_t *compare, const uint32_t *address, uint32_t offset)
{
    uint64_t at[LANES];
    if (lds_offsets(w, at, address, offset, 4 * (uint32_t)words, 1))
        return 1;
    act(w, operation, words, d, data, compare, at, w->m);
    return 0;
}

/* Lane exchanges through the LDS hardware: lanes that are off are read as 0 (CDNA3 ISA, DS_BPERMUTE). */
void ds_bpermute_b32(struct wave *w, uint32_t *d, const uint32_t *address, const uint32_t *data,
                     uint32_t offset)
{
    row masked, result;
    EACH masked[i] = data[i] & w->m[i];
    for (int i = 0; i < LANES; i++)
        result[i] = masked[(address[i] + offset) >> 2 & 63];
    EACH d[i] = w->m[i] ? result[i] : d[i];
}

void ds_permute_b32(struct wave *w, uint32_t *d, const uint32_t *address, const uint32_t *data,
                    uint32_t offset)
{
    row result = {0};
    for (int i = 0; i < LANES; i++)
        if (w->m[i])
            result[(address[i] + offset) >> 2 & 63] = data[i];
    EACH d[i] = w->m[i] ? result[i] : d[i];
}

/* Bit 15: quad permute; else: lanes of 32 by and, or, xor masks of 5 bits each. */
void ds_swizzle_b32(struct wave *w, uint32_t *d, const uint32_t *data, uint32_t offset)
{
    row result;
    for (int i = 0; i < LANES; i++) {
        int from;
        if (offset & 0x8000)
            from = (i & ~3) | (int)(offset >> (2 * (i & 3)) & 3);
        else
            from = (i & 32) | ((int)(((uint32_t)i & (offset & 31)) | (offset >> 5 & 31)) ^ (int)(offset >> 10 & 31));
        result[i] = data[from] & w->m[from];
    }
    EACH d[i] = w->m[i] ? result[i] : d[i];
}
