/* Lane masks, and the comparisons that give them. */
#include "vector_kit.h"

void expand(uint32_t *d, uint64_t mask)
{
    const uint32_t low = (uint32_t)mask, high = (uint32_t)(mask >> 32);
    for (int i = 0; i < 32; i++)
        d[i] = (uint32_t)((int32_t)(low << (31 - i)) >> 31);
    for (int i = 0; i < 32; i++)
        d[32 + i] = (uint32_t)((int32_t)(high << (31 - i)) >> 31);
}

void exec_changed(struct wave *w)
{
    expand(w->m, exec_of(w));
}

uint64_t lanes_of(const uint32_t *lanes)
{
    return mask_of(lanes);
}

#define COMPARED(name, type, load_a, load_b, condition)              \
    uint64_t name(const uint32_t *a, const uint32_t *b)              \
    {                                                                \
        uint32_t lanes[LANES];                                       \
        EACH                                                         \
        {                                                            \
            const type x = load_a, y = load_b;                       \
            lanes[i] = (condition) ? ~0u : 0;                        \
        }                                                            \
        return mask_of(lanes);                                       \
    }
#define COMPARED_SIX(suffix, type, x_, y_)                           \
    COMPARED(v_cmp_lt_##suffix, type, x_, y_, x < y)                 \
    COMPARED(v_cmp_eq_##suffix, type, x_, y_, x == y)                \
    COMPARED(v_cmp_le_##suffix, type, x_, y_, x <= y)                \
    COMPARED(v_cmp_gt_##suffix, type, x_, y_, x > y)                 \
    COMPARED(v_cmp_ne_##suffix, type, x_, y_, x != y)                \
    COMPARED(v_cmp_ge_##suffix, type, x_, y_, x >= y)
#define COMPARED_FLOAT(suffix, type, x_, y_)                         \
    COMPARED(v_cmp_lt_##suffix, type, x_, y_, x < y)                 \
    COMPARED(v_cmp_eq_##suffix, type, x_, y_, x == y)                \
    COMPARED(v_cmp_le_##suffix, type, x_, y_, x <= y)                \
    COMPARED(v_cmp_gt_##suffix, type, x_, y_, x > y)                 \
    COMPARED(v_cmp_lg_##suffix, type, x_, y_, x < y || x > y)        \
    COMPARED(v_cmp_ge_##suffix, type, x_, y_, x >= y)                \
    COMPARED(v_cmp_o_##suffix, type, x_, y_, x == x && y == y)       \
    COMPARED(v_cmp_u_##suffix, type, x_, y_, x != x || y != y)       \
    COMPARED(v_cmp_nge_##suffix, type, x_, y_, !(x >= y))            \
    COMPARED(v_cmp_nlg_##suffix, type, x_, y_, !(x < y || x > y))    \
    COMPARED(v_cmp_ngt_##suffix, type, x_, y_, !(x > y))             \
    COMPARED(v_cmp_nle_##suffix, type, x_, y_, !(x <= y))            \
    COMPARED(v_cmp_neq_##suffix, type, x_, y_, x != y)               \
    COMPARED(v_cmp_nlt_##suffix, type, x_, y_, !(x < y))
COMPARED_SIX(i32, int32_t, S(a[i]), S(b[i]))
COMPARED_SIX(u32, uint32_t, a[i], b[i])
COMPARED_SIX(i16, int32_t, S16(a[i]), S16(b[i]))
COMPARED_SIX(u16, uint32_t, U16(a[i]), U16(b[i]))
COMPARED_SIX(i64, int64_t, (int64_t)b64(a, i), (int64_t)b64(b, i))
COMPARED_SIX(u64, uint64_t, b64(a, i), b64(b, i))
COMPARED_FLOAT(f32, float, f32(a[i]), f32(b[i]))
COMPARED_FLOAT(f64, double, f64(a, i), f64(b, i))

uint64_t v_cmp_class_f32(const uint32_t *a, const uint32_t *b)
{
    uint64_t mask = 0;
    for (int i = 0; i < LANES; i++)
        mask |= (uint64_t)(uint32_t)f32_is_class(f32(a[i]), b[i]) << i;
    return mask;
}
