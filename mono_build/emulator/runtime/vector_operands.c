/* What encodings do to operands and results: modifiers, halves, SDWA; and moves of whole rows. */
#include "vector_kit.h"

void splat(uint32_t *d, uint32_t value)
{
    EACH d[i] = value;
}

void move(uint32_t *d, const uint32_t *a, const uint32_t *m, int rows)
{
    for (int k = 0; k < rows; k++, d += LANES, a += LANES) {
        if (m)
            EACH d[i] = m[i] ? a[i] : d[i];
        else
            EACH d[i] = a[i];
    }
}

void modify_f32(uint32_t *d, const uint32_t *a, int absolute, int negative)
{
    const uint32_t keep = absolute ? 0x7FFFFFFFu : ~0u, flip = negative ? 0x80000000u : 0;
    EACH d[i] = (a[i] & keep) ^ flip;
}

void modify_f16(uint32_t *d, const uint32_t *a, int absolute, int negative)
{
    const uint32_t keep = absolute ? 0xFFFF7FFFu : ~0u, flip = negative ? 0x8000u : 0;
    EACH d[i] = (a[i] & keep) ^ flip;
}

void modify_f64(uint32_t *d, const uint32_t *a, int absolute, int negative)
{
    move(d, a, NULL, 1);
    modify_f32(d + LANES, a + LANES, absolute, negative);
}

static inline float finished(float x, int omod, int clamp)
{
    if (omod)
        x *= omod == 1 ? 2.0f : omod == 2 ? 4.0f : 0.5f;
    if (clamp)
        x = f32_clamp(x);
    return x;
}

void finish_f32(uint32_t *d, int omod, int clamp)
{
    EACH d[i] = b32(finished(f32(d[i]), omod, clamp));
}

void finish_f64(uint32_t *d, int omod, int clamp)
{
    for (int i = 0; i < LANES; i++) {
        double x = f64(d, i);
        if (omod)
            x *= omod == 1 ? 2.0 : omod == 2 ? 4.0 : 0.5;
        if (clamp)
            x = x > 0 ? (x < 1 ? x : 1.0) : 0.0;
        const uint64_t r = b64_of(x);
        d[i] = (uint32_t)r;
        d[LANES + i] = (uint32_t)(r >> 32);
    }
}

void sdwa_source(uint32_t *d, const uint32_t *a, int select, int extend)
{
    const int bits = select < 4 ? 8 : select < 6 ? 16 : 32;
    const int low = select < 4 ? 8 * select : select < 6 ? 16 * (select - 4) : 0;
    const int up = 32 - bits;
    if (extend)
        EACH d[i] = (uint32_t)(S(a[i] >> low << up) >> up);
    else
        EACH d[i] = a[i] >> low << up >> up;
}

void sdwa_result(uint32_t *d, const uint32_t *a, int select, int unused, const uint32_t *m)
{
    const int bits = select < 4 ? 8 : select < 6 ? 16 : 32;
    const int low = select < 4 ? 8 * select : select < 6 ? 16 * (select - 4) : 0;
    const uint32_t field = bits == 32 ? ~0u : ((1u << bits) - 1) << low;
    for (int i = 0; i < LANES; i++) {
        uint32_t r = a[i] << low & field;
        if (unused == 1 && bits < 32 && a[i] >> (bits - 1) & 1)
            r |= ~(field | (field - 1)) & (low ? ~((1u << low) - 1) : ~0u);
        if (unused == 2)
            r |= d[i] & ~field;
        WRITE(d, r);
    }
}

void upper_half(uint32_t *d, const uint32_t *a)
{
    EACH d[i] = a[i] >> 16;
}

void choose_halves(uint32_t *d, const uint32_t *a, int low, int high)
{
    EACH d[i] = (a[i] >> (16 * low) & 0xFFFFu) | a[i] >> (16 * high) << 16;
}

void merge_half(uint32_t *d, const uint32_t *a, int high, const uint32_t *m)
{
    if (high)
        EACH WRITE(d, (d[i] & 0xFFFFu) | a[i] << 16);
    else
        EACH WRITE(d, (d[i] & 0xFFFF0000u) | (a[i] & 0xFFFFu));
}
