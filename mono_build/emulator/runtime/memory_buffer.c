/* Accesses through buffer descriptors. */
#include "access.h"

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
    load_lanes(width, d, lanes.address, lanes.on);
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
    uint32_t changed = store_lanes(width, data, lanes.address, lanes.on);
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
    act_atomically(w, operation, words, d, data, comparand(operation, words, data), lanes.address, lanes.on);
    for (int k = 0; d && k < words; k++) /* out of range: nothing happens, the old value reads as 0 */
        EACH d[k * LANES + i] = outside[i] ? 0 : d[k * LANES + i];
    count_atomic(w, words, lanes.on);
    return 0;
}
