/* Number formats: exact decoding, and encoding with one rounding to nearest even.
 *
 * Formats: IEEE binary16 (f16), bfloat16, the 8-bit formats e4m3 and e5m2 in their OCP form (gfx950) and their
 * FNUZ form (gfx942: no infinity, no negative zero, 0x80 is the only NaN, bias one higher), e2m1 (fp4) and the
 * E8M0 block scale. Facts from the OCP 8-bit and Microscaling specifications and the CDNA3 and CDNA4 ISA documents.
 *
 * Every function needs the default floating-point environment: rounding to nearest even, denormals kept. Nothing may
 * be compiled with options that relax floating point. `overflow_to_max` is bit FP16_OVFL of the wave's MODE. */
#ifndef MONO_EMULATOR_FORMATS_H
#define MONO_EMULATOR_FORMATS_H

#include <stdint.h>
#include <string.h>

#define MODE_FP16_OVFL (1u << 23)

static inline float as_f32(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t as_u32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double as_f64(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t as_u64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline int is_nan_bits(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

/* ---- decoding ------------------------------------------------------------------------------------------------ */

/* A small float's magnitude (exponent and mantissa bits) as f32. A mantissa without exponent counts units of the
 * smallest denormal, which an integer conversion gives without passing through f32's own denormals. */
static inline uint32_t small_to_f32_bits(uint32_t magnitude, int mantissa_bits, int bias)
{
    uint32_t normal = (magnitude << (23 - mantissa_bits)) + ((uint32_t)(127 - bias) << 23);
    uint32_t denormal_unit = (uint32_t)(127 + 1 - bias - mantissa_bits) << 23;
    uint32_t denormal = as_u32((float)(int32_t)magnitude * as_f32(denormal_unit));
    return magnitude < (1u << mantissa_bits) ? denormal : normal;
}

static inline float f16_to_f32(uint32_t code)
{
    uint32_t magnitude = code & 0x7fffu;
    uint32_t finite = small_to_f32_bits(magnitude, 10, 15);
    uint32_t special = 0x7f800000u | (magnitude & 0x3ffu) << 13 | (magnitude > 0x7c00u ? 0x400000u : 0);
    return as_f32((magnitude >= 0x7c00u ? special : finite) | (code & 0x8000u) << 16);
}

static inline float bf16_to_f32(uint32_t code)
{
    return as_f32(code << 16);
}

static inline float e4m3_to_f32(uint32_t code)
{
    uint32_t magnitude = code & 0x7fu;
    uint32_t bits = magnitude == 0x7fu ? 0x7fc00000u : small_to_f32_bits(magnitude, 3, 7);
    return as_f32(bits | (code & 0x80u) << 24);
}

static inline float e5m2_to_f32(uint32_t code)
{
    uint32_t magnitude = code & 0x7fu;
    uint32_t special = magnitude > 0x7cu ? 0x7fc00000u : 0x7f800000u;
    uint32_t bits = magnitude >= 0x7cu ? special : small_to_f32_bits(magnitude, 2, 15);
    return as_f32(bits | (code & 0x80u) << 24);
}

static inline float e4m3_fnuz_to_f32(uint32_t code)
{
    uint32_t bits = small_to_f32_bits(code & 0x7fu, 3, 8);
    return as_f32((code & 0xffu) == 0x80u ? 0x7fc00000u : bits | (code & 0x80u) << 24);
}

static inline float e5m2_fnuz_to_f32(uint32_t code)
{
    uint32_t bits = small_to_f32_bits(code & 0x7fu, 2, 16);
    return as_f32((code & 0xffu) == 0x80u ? 0x7fc00000u : bits | (code & 0x80u) << 24);
}

static inline float e2m1_to_f32(uint32_t code)
{
    return as_f32(small_to_f32_bits(code & 7u, 1, 1) | (code & 8u) << 28);
}

/* 2^(code - 127); code 0 is the denormal 2^-127, code 255 is NaN. */
static inline float e8m0_to_f32(uint32_t code)
{
    uint32_t c = code & 0xffu;
    return as_f32(c == 0 ? 0x00400000u : c == 255 ? 0x7fc00000u : c << 23);
}

/* ---- encoding ------------------------------------------------------------------------------------------------ */

/* The code of a magnitude that is not NaN, rounded to nearest even as if the exponent had no upper end: the caller
 * compares with its largest code. Below the smallest normal number, adding a power of two whose unit is the smallest
 * denormal makes the addition do the rounding. */
static inline uint32_t f32_to_small(uint32_t magnitude, int mantissa_bits, int bias)
{
    int dropped = 23 - mantissa_bits;
    uint32_t rebiased = magnitude - ((uint32_t)(127 - bias) << 23);
    uint32_t normal = (rebiased + (1u << (dropped - 1)) - 1 + ((rebiased >> dropped) & 1)) >> dropped;
    uint32_t unit = (uint32_t)(127 + 1 - bias - mantissa_bits + 23) << 23;
    uint32_t denormal = as_u32(as_f32(magnitude) + as_f32(unit)) - unit;
    return magnitude < ((uint32_t)(128 - bias) << 23) ? denormal : normal;
}

/* NaN stays NaN with its upper payload bits; infinity stays. */
static inline uint32_t f32_to_f16(float value, int overflow_to_max)
{
    uint32_t bits = as_u32(value), magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    if (magnitude > 0x7f800000u)
        return sign | 0x7e00u | (magnitude >> 13 & 0x3ffu);
    uint32_t code = f32_to_small(magnitude, 10, 15);
    if (code >= 0x7c00u)
        code = overflow_to_max && magnitude != 0x7f800000u ? 0x7bffu : 0x7c00u;
    return sign | code;
}

/* Rounds toward zero, so that nothing finite becomes infinite. */
static inline uint32_t f32_to_f16_toward_zero(float value)
{
    uint32_t bits = as_u32(value), magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    if (magnitude > 0x7f800000u)
        return sign | 0x7e00u | (magnitude >> 13 & 0x3ffu);
    if (magnitude == 0x7f800000u)
        return sign | 0x7c00u;
    if (magnitude >= 0x47800000u) /* 65536 */
        return sign | 0x7bffu;
    if (magnitude >= 0x38800000u) /* 2^-14 */
        return sign | (magnitude - (112u << 23)) >> 13;
    return sign | (uint32_t)(as_f32(magnitude) * 0x1p24f);
}

static inline uint32_t f32_to_bf16(float value, int overflow_to_max)
{
    uint32_t bits = as_u32(value), magnitude = bits & 0x7fffffffu;
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    if (overflow_to_max && (rounded & 0x7fffu) == 0x7f80u && magnitude != 0x7f800000u)
        rounded = (rounded & 0x8000u) | 0x7f7fu;
    return magnitude > 0x7f800000u ? bits >> 16 | 0x40u : rounded;
}

/* OCP e4m3: overflow, and infinity, give NaN (the format has no infinity), or the largest number 448. */
static inline uint32_t f32_to_e4m3(float value, int overflow_to_max)
{
    uint32_t bits = as_u32(value), magnitude = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
    uint32_t code = f32_to_small(magnitude, 3, 7);
    if (code > 0x7eu)
        code = overflow_to_max ? 0x7eu : 0x7fu;
    return sign | (magnitude > 0x7f800000u ? 0x7fu : code);
}

/* OCP e5m2: overflow, and infinity, give infinity, or the largest number 57344. */
static inline uint32_t f32_to_e5m2(float value, int overflow_to_max)
{
    uint32_t bits = as_u32(value), magnitude = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
    uint32_t code = f32_to_small(magnitude, 2, 15);
    if (code > 0x7bu)
        code = overflow_to_max ? 0x7bu : 0x7cu;
    return sign | (magnitude > 0x7f800000u ? 0x7fu : code);
}

/* FNUZ: overflow and infinity give NaN, or the largest number; a negative value that rounds to zero is plain zero. */
static inline uint32_t fnuz_code(uint32_t bits, uint32_t code, int overflow_to_max)
{
    uint32_t sign = bits >> 24 & 0x80u;
    uint32_t finite = code == 0 ? 0 : sign | code;
    uint32_t too_large = overflow_to_max ? sign | 0x7fu : 0x80u;
    return is_nan_bits(bits) ? 0x80u : code > 0x7fu ? too_large : finite;
}

static inline uint32_t f32_to_e4m3_fnuz(float value, int overflow_to_max)
{
    uint32_t bits = as_u32(value);
    return fnuz_code(bits, f32_to_small(bits & 0x7fffffffu, 3, 8), overflow_to_max);
}

static inline uint32_t f32_to_e5m2_fnuz(float value, int overflow_to_max)
{
    uint32_t bits = as_u32(value);
    return fnuz_code(bits, f32_to_small(bits & 0x7fffffffu, 2, 16), overflow_to_max);
}

/* e2m1 has neither infinity nor NaN: everything beyond 5 rounds or saturates to 6. What hardware makes of a NaN is not
 * documented; here it becomes the largest magnitude with the NaN's sign, so that it does not vanish. */
static inline uint32_t f32_to_e2m1(float value)
{
    uint32_t bits = as_u32(value), magnitude = bits & 0x7fffffffu;
    uint32_t code = f32_to_small(magnitude, 1, 1);
    return (bits >> 28 & 8u) | (code > 7u ? 7u : code);
}

#endif
