/* f16 arithmetic on whole rows; see halves.h. */
#include "halves.h"

#include "numeric.h"

#define SIGN 0x8000u
/* x, y and z are the halves of one lane. */
#define SINGLE(name, value)                                                                                        \
    void name(uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *c, const uint32_t *m, int overflow) \
    {                                                                                                              \
        (void)c, (void)overflow;                                                                                   \
        for (int i = 0; i < LANES; i++) {                                                                          \
            const uint32_t x = a[i] & 0xffffu, y = b[i] & 0xffffu, z = c ? c[i] & 0xffffu : 0;                     \
            (void)z;                                                                                               \
            d[i] = m[i] ? (value) : d[i];                                                                          \
        }                                                                                                          \
    }
#define PACKED(name, of_half)                                                                                      \
    static inline uint32_t name##_half(uint32_t x, uint32_t y, uint32_t z, int overflow)                           \
    {                                                                                                              \
        (void)z, (void)overflow;                                                                                   \
        return of_half;                                                                                            \
    }                                                                                                              \
    void name(uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *c, const uint32_t *m, int overflow) \
    {                                                                                                              \
        for (int i = 0; i < LANES; i++) {                                                                          \
            const uint32_t z = c ? c[i] : 0;                                                                       \
            const uint32_t low = name##_half(a[i] & 0xffffu, b[i] & 0xffffu, z & 0xffffu, overflow);               \
            const uint32_t high = name##_half(a[i] >> 16, b[i] >> 16, z >> 16, overflow);                          \
            d[i] = m[i] ? pack16(low, high) : d[i];                                                                \
        }                                                                                                          \
    }

SINGLE(v_add_f16, f16_add(x, y, overflow))
SINGLE(v_sub_f16, f16_add(x, y ^ SIGN, overflow))
SINGLE(v_subrev_f16, f16_add(y, x ^ SIGN, overflow))
SINGLE(v_mul_f16, f16_mul(x, y, overflow))
SINGLE(v_fma_f16, f16_fma(x, y, z, overflow))
SINGLE(v_min_f16, f16_min(x, y))
SINGLE(v_max_f16, f16_max(x, y))
PACKED(v_pk_add_f16, f16_add(x, y, overflow))
PACKED(v_pk_mul_f16, f16_mul(x, y, overflow))
PACKED(v_pk_fma_f16, f16_fma(x, y, z, overflow))
PACKED(v_pk_min_f16, f16_min(x, y))
PACKED(v_pk_max_f16, f16_max(x, y))

void pick_halves(uint32_t *d, const uint32_t *a, int low, int high, int negative_low, int negative_high)
{
    for (int i = 0; i < LANES; i++) {
        const uint32_t first = a[i] >> (16 * low) & 0xffffu, second = a[i] >> (16 * high) & 0xffffu;
        d[i] = pack16(first ^ (negative_low ? SIGN : 0), second ^ (negative_high ? SIGN : 0));
    }
}
