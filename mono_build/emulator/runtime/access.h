/* What the files of memory instructions share: which bytes lanes may touch, and how lanes load and store.
 *
 * `on` has all ones in the lanes that act. Functions that check answer 1 after they have filled the wave's fault.
 */
#ifndef MONO_EMULATOR_ACCESS_H
#define MONO_EMULATOR_ACCESS_H

#include <string.h>

#include "memory.h"

#define EACH _Pragma("GCC ivdep") for (int i = 0; i < LANES; i++)
#define INLINE static inline __attribute__((always_inline))
#define LIKELY(x) __builtin_expect(!!(x), 1)

int fault(struct wave *w, uint32_t kind, int lane, uint64_t address, uint32_t bytes, int is_write);
/* The slow half of `check_lanes`: lanes of more than one allocation, or of none. */
int check_each_lane(struct wave *w, struct range *site, const uint64_t *address, const uint32_t *on,
                    uint32_t bytes, int is_write);
void load_lanes(enum width width, uint32_t *d, const uint64_t *address, const uint32_t *on);
/* Answers whether memory changed. */
uint32_t store_lanes(enum width width, const uint32_t *s, const uint64_t *address, const uint32_t *on);
/* Lanes act one after another, from lane 0. d: the old values, or NULL; compare: what CMPSWAP compares with. */
void act_atomically(struct wave *w, enum atomic operation, int words, uint32_t *d, const uint32_t *data,
                    const uint32_t *compare, const uint64_t *at, const uint32_t *on);

INLINE int is_inside(const struct range *site, uint64_t address, uint64_t bytes)
{
    return address >= site->start && address + bytes <= site->end && address + bytes >= address;
}

/* Check the lanes that `on` has set; 1 after a fault. */
INLINE int check_lanes(struct wave *w, struct range *site, const uint64_t *address, const uint32_t *on,
                       uint32_t bytes, int is_write)
{
    const uint64_t start = site->start, size = site->end - start;
    uint32_t bad = 0;
    if (LIKELY(size >= bytes))
        EACH bad |= on[i] & -(uint32_t)(address[i] - start > size - bytes);
    else
        EACH bad |= on[i];
    return LIKELY(!bad) ? 0 : check_each_lane(w, site, address, on, bytes, is_write);
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

INLINE uint32_t count_lanes(const uint32_t *on)
{
    uint32_t lanes = 0;
    EACH lanes += on[i] & 1;
    return lanes;
}

/* CMPSWAP's comparand follows the new value. */
INLINE const uint32_t *comparand(enum atomic operation, int words, const uint32_t *data)
{
    return operation == ATOMIC_CMPSWAP ? data + words * LANES : NULL;
}

INLINE void count_atomic(struct wave *w, int words, const uint32_t *on)
{
    const uint64_t bytes = 4 * (uint64_t)words * count_lanes(on);
    w->launch->counters.global_read += bytes;
    w->launch->counters.global_written += bytes;
}

#endif
