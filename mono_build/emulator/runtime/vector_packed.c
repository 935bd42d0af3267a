/* Packed vector instructions: two numbers a lane. */
#include <string.h>

#include "vector_kit.h"

/* Packed 16 bits; the caller has put the chosen halves in place. */
#define BOTH(low, high) (U16(low) | (uint32_t)(high) << 16)
#define HIGH(x) ((x) >> 16)
#define SHIGH(x) (S(x) >> 16)
BITS2(v_pk_add_u16, BOTH(x + y, HIGH(x) + HIGH(y)))
BITS2(v_pk_sub_u16, BOTH(x - y, HIGH(x) - HIGH(y)))
BITS2(v_pk_mul_lo_u16, BOTH(x * y, HIGH(x) * HIGH(y)))
BITS3(v_pk_mad_u16, BOTH(x * y + z, HIGH(x) * HIGH(y) + HIGH(z)))
BITS2(v_pk_lshlrev_b16, BOTH(y << (x & 15), HIGH(y) << (HIGH(x) & 15)))
BITS2(v_pk_lshrrev_b16, BOTH(U16(y) >> (x & 15), HIGH(y) >> (HIGH(x) & 15)))
BITS2(v_pk_ashrrev_i16, BOTH((uint32_t)(S16(y) >> (x & 15)), (uint32_t)(SHIGH(y) >> (HIGH(x) & 15))))
BITS2(v_pk_min_u16, BOTH(LESS(U16(x), U16(y)), LESS(HIGH(x), HIGH(y))))
BITS2(v_pk_max_u16, BOTH(MORE(U16(x), U16(y)), MORE(HIGH(x), HIGH(y))))
BITS2(v_pk_min_i16, BOTH((uint32_t)LESS(S16(x), S16(y)), (uint32_t)LESS(SHIGH(x), SHIGH(y))))
BITS2(v_pk_max_i16, BOTH((uint32_t)MORE(S16(x), S16(y)), (uint32_t)MORE(SHIGH(x), SHIGH(y))))

/* operation 0: a + b, 1: a * b, 2: fma, 3: move. low and high: bit k takes operand k's second register. */
void pk_f32(uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *c, const uint32_t *m,
            int operation, int low, int high, int negative_low, int negative_high)
{
    const uint32_t *source[3] = {a, b, c};
    const uint32_t *operand[2][3];
    uint32_t flip[2][3];
    row result[2];
    for (int half = 0; half < 2; half++)
        for (int k = 0; k < 3; k++) {
            operand[half][k] = source[k] ? source[k] + ((half ? high : low) >> k & 1) * LANES : a;
            flip[half][k] = ((half ? negative_high : negative_low) >> k & 1) ? 0x80000000u : 0;
        }
    for (int half = 0; half < 2; half++) {
        const uint32_t *x = operand[half][0], *y = operand[half][1], *z = operand[half][2];
        const uint32_t fx = flip[half][0], fy = flip[half][1], fz = flip[half][2];
        uint32_t *r = result[half];
        if (operation == 0)
            EACH r[i] = b32(f32(x[i] ^ fx) + f32(y[i] ^ fy));
        else if (operation == 1)
            EACH r[i] = b32(f32(x[i] ^ fx) * f32(y[i] ^ fy));
        else if (operation == 2)
            EACH r[i] = b32(__builtin_fmaf(f32(x[i] ^ fx), f32(y[i] ^ fy), f32(z[i] ^ fz)));
        else
            memcpy(r, half ? y : x, sizeof(row));
    }
    move(d, result[0], m, 2);
}
