/* The conversion instructions, one lane at a time. Facts from the CDNA3 and CDNA4 ISA documents.
 *
 * A packed result of two 16-bit values is a dword, the first source in the low half. An instruction that writes part
 * of its destination takes the old dword and gives the new one. */
#ifndef MONO_EMULATOR_CONVERT_H
#define MONO_EMULATOR_CONVERT_H

#include <math.h>

#include "formats.h"

/* ---- integers ------------------------------------------------------------------------------------------------ */

/* Truncation; out of range saturates, NaN gives 0. */
static inline int32_t f32_to_i32(float value)
{
    if (!(value > -0x1p31f))
        return value != value ? 0 : INT32_MIN;
    return value >= 0x1p31f ? INT32_MAX : (int32_t)value;
}

static inline uint32_t f32_to_u32(float value)
{
    if (!(value > 0))
        return 0;
    return value >= 0x1p32f ? UINT32_MAX : (uint32_t)value;
}

/* The smallest multiple of 1 above value - 0.5, as v_cvt_rpi_i32_f32 has it. The sum is taken without rounding. */
static inline int32_t f32_to_i32_nearest_up(float value)
{
    double sum = floor((double)value + 0.5);
    return sum != sum ? 0 : sum >= 0x1p31 ? INT32_MAX : sum <= -0x1p31 ? INT32_MIN : (int32_t)sum;
}

static inline int32_t f32_to_i32_floor(float value)
{
    return f32_to_i32(floorf(value));
}

/* Sixteenths, -8/16 to 7/16, by the low four bits. */
static inline float i4_to_f32_offset(uint32_t code)
{
    int32_t value = (int32_t)(code & 15u);
    return (float)(value > 7 ? value - 16 : value) * 0.0625f;
}

static inline uint32_t i32_to_i16_saturated(int32_t value)
{
    return (uint32_t)(value < -32768 ? -32768 : value > 32767 ? 32767 : value) & 0xffffu;
}

static inline uint32_t u32_to_u16_saturated(uint32_t value)
{
    return value > 0xffffu ? 0xffffu : value;
}

/* ---- packed pairs of f32 ------------------------------------------------------------------------------------- */

static inline uint32_t pack16(uint32_t low, uint32_t high)
{
    return (low & 0xffffu) | high << 16;
}

static inline uint32_t cvt_pk_bf16_f32(float low, float high, int overflow_to_max)
{
    return pack16(f32_to_bf16(low, overflow_to_max), f32_to_bf16(high, overflow_to_max));
}

static inline uint32_t cvt_pk_f16_f32(float low, float high, int overflow_to_max)
{
    return pack16(f32_to_f16(low, overflow_to_max), f32_to_f16(high, overflow_to_max));
}

static inline uint32_t cvt_pkrtz_f16_f32(float low, float high)
{
    return pack16(f32_to_f16_toward_zero(low), f32_to_f16_toward_zero(high));
}

/* Sets the half `high_half` of `old`; the other half stays. */
static inline uint32_t put_half(uint32_t old, unsigned high_half, uint32_t value)
{
    unsigned shift = 16 * high_half;
    return (old & ~(0xffffu << shift)) | (value & 0xffffu) << shift;
}

static inline uint32_t put_byte(uint32_t old, unsigned byte, uint32_t value)
{
    unsigned shift = 8 * byte;
    return (old & ~(0xffu << shift)) | (value & 0xffu) << shift;
}

/* ---- 8- and 4-bit formats by number, so that one emitter serves all ------------------------------------------ */

enum small_format { E4M3, E5M2, E4M3_FNUZ, E5M2_FNUZ, E2M1 };

static inline float small_to_f32(enum small_format format, uint32_t code)
{
    switch (format) {
    case E4M3: return e4m3_to_f32(code);
    case E5M2: return e5m2_to_f32(code);
    case E4M3_FNUZ: return e4m3_fnuz_to_f32(code);
    case E5M2_FNUZ: return e5m2_fnuz_to_f32(code);
    default: return e2m1_to_f32(code);
    }
}

static inline uint32_t f32_to_small_code(enum small_format format, float value, int overflow_to_max)
{
    switch (format) {
    case E4M3: return f32_to_e4m3(value, overflow_to_max);
    case E5M2: return f32_to_e5m2(value, overflow_to_max);
    case E4M3_FNUZ: return f32_to_e4m3_fnuz(value, overflow_to_max);
    case E5M2_FNUZ: return f32_to_e5m2_fnuz(value, overflow_to_max);
    default: return f32_to_e2m1(value);
    }
}

/* The code of a packed pair's element (0 or 1): bytes of half `part` for the 8-bit formats, nibbles of byte `part`
 * for e2m1. `part` is the instruction's op_sel, or its SDWA selection. */
static inline uint32_t small_code_at(enum small_format format, uint32_t word, unsigned part, unsigned element)
{
    return format == E2M1 ? word >> (8 * part + 4 * element) & 0xfu : word >> (16 * part + 8 * element) & 0xffu;
}

/* v_cvt_pk_fp8_f32, v_cvt_pk_bf8_f32: two codes into half `high_half` of `old`. */
static inline uint32_t cvt_pk_small_f32(enum small_format format, uint32_t old, unsigned high_half, float low,
                                        float high, int overflow_to_max)
{
    uint32_t first = f32_to_small_code(format, low, overflow_to_max);
    uint32_t second = f32_to_small_code(format, high, overflow_to_max);
    return put_half(old, high_half, first | second << 8);
}

/* ---- v_cvt_scalef32_* (gfx950): only the exponent field of the f32 scale counts, read as E8M0 ----------------- */

static inline uint32_t scale_code(uint32_t scale_bits)
{
    return scale_bits >> 23 & 0xffu;
}

/* 2^(127 - code): what dividing by the scale multiplies with. Code 254 gives the denormal 2^-127, and 255 (NaN) stays
 * 255 in 8 bits. */
static inline float e8m0_reciprocal(uint32_t code)
{
    return e8m0_to_f32(254u - code);
}

/* Element 0 or 1 of a packed pair times the scale, as f32. Its only rounding is into f32's denormals. */
static inline float cvt_scalef32_f32_small(enum small_format format, uint32_t word, unsigned part, unsigned element,
                                           uint32_t scale_bits)
{
    float value = small_to_f32(format, small_code_at(format, word, part, element));
    return value * e8m0_to_f32(scale_code(scale_bits));
}

/* Both elements times the scale, as packed bf16. Rounding can occur in bf16's denormals and at its upper end only,
 * where f32 already has the result exactly but for its own denormals, whose last bits bf16 drops anyway. */
static inline uint32_t cvt_scalef32_pk_bf16_small(enum small_format format, uint32_t word, unsigned part,
                                                  uint32_t scale_bits, int overflow_to_max)
{
    return cvt_pk_bf16_f32(cvt_scalef32_f32_small(format, word, part, 0, scale_bits),
                           cvt_scalef32_f32_small(format, word, part, 1, scale_bits), overflow_to_max);
}

static inline uint32_t cvt_scalef32_pk_f16_small(enum small_format format, uint32_t word, unsigned part,
                                                 uint32_t scale_bits, int overflow_to_max)
{
    return cvt_pk_f16_f32(cvt_scalef32_f32_small(format, word, part, 0, scale_bits),
                          cvt_scalef32_f32_small(format, word, part, 1, scale_bits), overflow_to_max);
}

/* Two f32 divided by the scale, into half (8-bit formats) or byte (e2m1) `part` of `old`. The division is exact: where
 * f32 has no such number, the result is zero or beyond the format's end anyway. */
static inline uint32_t cvt_scalef32_pk_small_f32(enum small_format format, uint32_t old, unsigned part, float low,
                                                 float high, uint32_t scale_bits, int overflow_to_max)
{
    float factor = e8m0_reciprocal(scale_code(scale_bits));
    uint32_t first = f32_to_small_code(format, low * factor, overflow_to_max);
    uint32_t second = f32_to_small_code(format, high * factor, overflow_to_max);
    if (format == E2M1)
        return put_byte(old, part, first | second << 4);
    return put_half(old, part, first | second << 8);
}

/* The same from a packed pair of bf16, and of f16. */
static inline uint32_t cvt_scalef32_pk_small_bf16(enum small_format format, uint32_t old, unsigned part, uint32_t pair,
                                                  uint32_t scale_bits, int overflow_to_max)
{
    return cvt_scalef32_pk_small_f32(format, old, part, bf16_to_f32(pair & 0xffffu), bf16_to_f32(pair >> 16),
                                     scale_bits, overflow_to_max);
}

static inline uint32_t cvt_scalef32_pk_small_f16(enum small_format format, uint32_t old, unsigned part, uint32_t pair,
                                                 uint32_t scale_bits, int overflow_to_max)
{
    return cvt_scalef32_pk_small_f32(format, old, part, f16_to_f32(pair & 0xffffu), f16_to_f32(pair >> 16), scale_bits,
                                     overflow_to_max);
}

#endif
