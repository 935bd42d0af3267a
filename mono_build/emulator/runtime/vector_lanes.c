/* Vector instructions that move between lanes or count them. */
#include <string.h>

#include "vector_kit.h"

void dpp(uint32_t *d, uint32_t *enable, const uint32_t *a, const uint32_t *from, const uint32_t *lanes,
         const uint32_t *m, int bound_zero)
{
    for (int i = 0; i < LANES; i++) {
        const uint32_t source = from[i] & 63;
        const uint32_t valid = from[i] < LANES ? m[source] : 0;
        d[i] = a[source] & valid;
        enable[i] = m[i] & lanes[i] & (bound_zero ? ~0u : valid);
    }
}

/* Swap the upper `width` lanes of each 2 * width of d with the lower ones of a; only where EXEC is on. */
static inline void swap_halves(uint32_t *d, uint32_t *a, const uint32_t *m, int width)
{
    row old_d, old_a;
    memcpy(old_d, d, sizeof old_d);
    memcpy(old_a, a, sizeof old_a);
    for (int i = 0; i < LANES; i++) {
        if (i & width) {
            WRITE(d, old_a[i - width]);
        } else {
            WRITE(a, old_d[i + width]);
        }
    }
}

void v_permlane16_swap_b32(uint32_t *d, uint32_t *a, const uint32_t *m)
{
    swap_halves(d, a, m, 16);
}

void v_permlane32_swap_b32(uint32_t *d, uint32_t *a, const uint32_t *m)
{
    swap_halves(d, a, m, 32);
}

void v_swap_b32(uint32_t *d, uint32_t *a, const uint32_t *m)
{
    EACH
    {
        const uint32_t x = d[i], y = a[i];
        WRITE(d, y);
        WRITE(a, x);
    }
}

void v_mbcnt_lo_u32_b32(VECTOR_ARGUMENTS)
{
    (void)c;
    for (int i = 0; i < LANES; i++) {
        const uint32_t below = i < 32 ? (1u << i) - 1 : ~0u;
        WRITE(d, (uint32_t)__builtin_popcount(a[i] & below) + b[i]);
    }
}

void v_mbcnt_hi_u32_b32(VECTOR_ARGUMENTS)
{
    (void)c;
    for (int i = 0; i < LANES; i++) {
        const uint32_t below = i < 32 ? 0 : (1u << (i - 32)) - 1;
        WRITE(d, (uint32_t)__builtin_popcount(a[i] & below) + b[i]);
    }
}
