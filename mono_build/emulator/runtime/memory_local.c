/* Scratch and LDS: offsets into one piece of memory; and lane exchanges through the LDS hardware. */
#include "access.h"

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
    load_lanes(width, d, at, w->m);
    return 0;
}

int scratch_store(struct wave *w, enum width width, const uint32_t *data, const uint32_t *address,
                  uint32_t offset)
{
    uint64_t at[LANES];
    if (scratch_offsets(w, at, width, address, offset, 1))
        return 1;
    (void)store_lanes(width, data, at, w->m);
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
    load_lanes(width, d, at, w->m);
    return 0;
}

int lds_store(struct wave *w, enum width width, const uint32_t *data, const uint32_t *address,
              uint32_t offset)
{
    uint64_t at[LANES];
    if (lds_offsets(w, at, address, offset, bytes_of(width), 1))
        return 1;
    if (store_lanes(width, data, at, w->m))
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
    load_lanes(width, d, at[0], w->m);
    load_lanes(width, d + words * LANES, at[1], w->m);
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
    if (store_lanes(width, data0, at[0], w->m) | store_lanes(width, data1, at[1], w->m))
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

int lds_atomic(struct wave *w, enum atomic operation, int words, uint32_t *d, const uint32_t *data,
               const uint32_t *compare, const uint32_t *address, uint32_t offset)
{
    uint64_t at[LANES];
    if (lds_offsets(w, at, address, offset, 4 * (uint32_t)words, 1))
        return 1;
    act_atomically(w, operation, words, d, data, compare, at, w->m);
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
