/* Scalar loads, and accesses of lanes to global memory. */
#include "access.h"

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
    load_lanes(width, d, at, w->m);
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
    if (store_lanes(width, data, at, w->m))
        ++*w->progress;
    w->launch->counters.global_written += bytes_of(width) * count_lanes(w->m);
    return 0;
}

int global_atomic(struct wave *w, struct range *site, enum atomic operation, int words, uint32_t *d,
                  const uint32_t *data, const uint32_t *address, int is_wide, uint64_t base,
                  int32_t offset)
{
    uint64_t at[LANES];
    global_addresses(at, address, is_wide, base, offset);
    if (check_lanes(w, site, at, w->m, 4 * (uint32_t)words, 1))
        return 1;
    act_atomically(w, operation, words, d, data, comparand(operation, words, data), at, w->m);
    count_atomic(w, words, w->m);
    return 0;
}
