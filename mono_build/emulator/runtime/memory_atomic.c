/* What atomic instructions do to a word of memory, lane by lane. */
#include "access.h"

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

void act_atomically(struct wave *w, enum atomic operation, int words, uint32_t *d, const uint32_t *data,
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
