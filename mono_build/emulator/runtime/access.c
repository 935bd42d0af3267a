/* How lanes load and store; see access.h. */
#include "access.h"

int fault(struct wave *w, uint32_t kind, int lane, uint64_t address, uint32_t bytes, int is_write)
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

int check_each_lane(struct wave *w, struct range *site, const uint64_t *address, const uint32_t *on,
                    uint32_t bytes, int is_write)
{
    struct range last = *site;
    for (int i = 0; i < LANES; i++)
        if (on[i] && !is_inside(&last, address[i], bytes) &&
            !find_range(w->memory, &last, address[i], bytes))
            return fault(w, FAULT_GLOBAL, i, address[i], bytes, is_write);
    *site = last;
    return 0;
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

void load_lanes(enum width width, uint32_t *d, const uint64_t *address, const uint32_t *on)
{
    if (width >= WIDTH_1) {
        load_words((int)(width - WIDTH_1) + 1, d, address, on);
        return;
    }
    WIDTHS(for (int i = 0; i < LANES; i++)
               if (on[i])
                   load_lane(fixed, d + i, (const uint8_t *)(uintptr_t)address[i]))
}

uint32_t store_lanes(enum width width, const uint32_t *s, const uint64_t *address, const uint32_t *on)
{
    uint32_t changed = 0;
    WIDTHS(for (int i = 0; i < LANES; i++)
               if (on[i])
                   changed |= store_lane(fixed, s + i, (uint8_t *)(uintptr_t)address[i]))
    return changed;
}
