/* Floating-point arithmetic of one lane: what C's operators and fmaf do not give as the ISA documents have it.
 *
 * Modelled for MODE as compute kernels start with it: IEEE on, DX10_CLAMP on, rounding to nearest even, denormals
 * kept. Addition, multiplication, fmaf and comparisons are C's own. */
#ifndef MONO_EMULATOR_ARITHMETIC_H
#define MONO_EMULATOR_ARITHMETIC_H

#include <math.h>

#include "formats.h"

static inline float quiet(float nan)
{
    return as_f32(as_u32(nan) | 0x00400000u);
}

static inline int is_signalling(float value)
{
    uint32_t bits = as_u32(value);
    return is_nan_bits(bits) & !(bits & 0x00400000u);
}

/* ---- minimum and maximum ------------------------------------------------------------------------------------- */

/* Written as selections of bits, so that a loop over lanes is vectorised. Equal numbers have equal bits but for zeros of
 * two signs; -0 is less than +0. */
static inline uint32_t lesser_bits(float a, float b)
{
    return a == b ? as_u32(a) | as_u32(b) : a < b ? as_u32(a) : as_u32(b);
}

static inline uint32_t greater_bits(float a, float b)
{
    return a == b ? as_u32(a) & as_u32(b) : a > b ? as_u32(a) : as_u32(b);
}

/* `chosen`, unless a NaN is among the two: a quiet NaN loses against a number, a signalling one wins (quieted). */
static inline float number_of(float a, float b, uint32_t chosen)
{
    uint32_t result = b != b ? as_u32(a) : chosen;
    result = a != a ? as_u32(b) : result;
    result = is_signalling(b) ? as_u32(quiet(b)) : result;
    return as_f32(is_signalling(a) ? as_u32(quiet(a)) : result);
}

static inline float f32_min(float a, float b)
{
    return number_of(a, b, lesser_bits(a, b));
}

static inline float f32_max(float a, float b)
{
    return number_of(a, b, greater_bits(a, b));
}

static inline float f32_min3(float a, float b, float c)
{
    return f32_min(f32_min(a, b), c);
}

static inline float f32_max3(float a, float b, float c)
{
    return f32_max(f32_max(a, b), c);
}

/* Of three; with a NaN among them the minimum of the rest. */
static inline float f32_med3(float a, float b, float c)
{
    float largest = f32_max3(a, b, c);
    uint32_t ab = as_u32(f32_max(a, b)), ac = as_u32(f32_max(a, c)), bc = as_u32(f32_max(b, c));
    uint32_t middle = largest == a ? bc : largest == b ? ac : ab;
    int has_nan = (a != a) | (b != b) | (c != c);
    return as_f32(has_nan ? as_u32(f32_min3(a, b, c)) : middle);
}

/* gfx950's v_minimum3 and v_maximum3 follow IEEE 754-2019: any NaN gives NaN. */
static inline float nan_of(float a, float b, uint32_t chosen)
{
    uint32_t result = b != b ? as_u32(quiet(b)) : chosen;
    return as_f32(a != a ? as_u32(quiet(a)) : result);
}

static inline float f32_minimum(float a, float b)
{
    return nan_of(a, b, lesser_bits(a, b));
}

static inline float f32_maximum(float a, float b)
{
    return nan_of(a, b, greater_bits(a, b));
}

static inline float f32_minimum3(float a, float b, float c)
{
    return f32_minimum(f32_minimum(a, b), c);
}

static inline float f32_maximum3(float a, float b, float c)
{
    return f32_maximum(f32_maximum(a, b), c);
}

/* The output modifier `clamp`: to [0, 1], NaN to 0. */
static inline float f32_clamp(float value)
{
    return !(value > 0.0f) ? 0.0f : value > 1.0f ? 1.0f : value;
}

/* v_cmp_class_f32: whether the value is of a class whose bit is set: signalling NaN, quiet NaN, -infinity, -normal,
 * -denormal, -0, +0, +denormal, +normal, +infinity (bits 0 to 9). */
static inline int f32_is_class(float value, uint32_t mask)
{
    uint32_t bits = as_u32(value), magnitude = bits & 0x7fffffffu;
    int negative = (int)(bits >> 31), bit;
    if (magnitude > 0x7f800000u)
        bit = magnitude & 0x00400000u ? 1 : 0;
    else if (magnitude == 0x7f800000u)
        bit = negative ? 2 : 9;
    else if (magnitude >= 0x00800000u)
        bit = negative ? 3 : 8;
    else
        bit = magnitude ? (negative ? 4 : 7) : (negative ? 5 : 6);
    return (int)(mask >> bit & 1);
}

/* ---- parts of a number --------------------------------------------------------------------------------------- */

/* x - floor(x), as the document has it: a tiny negative x rounds to 1. */
static inline float f32_fract(float value)
{
    return value - floorf(value);
}

/* The power of two that v_frexp_mant leaves out, so that the mantissa is in [0.5, 1); 0 for zero, infinity, NaN. */
static inline int32_t f32_frexp_exponent(float value)
{
    uint32_t magnitude = as_u32(value) & 0x7fffffffu;
    /* A denormal is an integer times 2^-149; as a float of its own it has an exponent. */
    int32_t normal = (int32_t)(magnitude >> 23) - 126;
    int32_t denormal = (int32_t)(as_u32((float)(int32_t)magnitude) >> 23) - 126 - 149;
    int32_t exponent = magnitude < 0x00800000u ? denormal : normal;
    return magnitude == 0 || magnitude >= 0x7f800000u ? 0 : exponent;
}

static inline float f32_frexp_mantissa(float value)
{
    uint32_t bits = as_u32(value), magnitude = bits & 0x7fffffffu;
    uint32_t normalised = magnitude < 0x00800000u ? as_u32((float)(int32_t)magnitude) : magnitude;
    uint32_t mantissa = (bits & 0x80000000u) | 0x3f000000u | (normalised & 0x007fffffu);
    return as_f32(magnitude == 0 || magnitude >= 0x7f800000u ? bits : mantissa);
}

/* value * 2^exponent with one rounding. Beyond 400 the result is zero or infinite for every f32. */
static inline float f32_ldexp(float value, int32_t exponent)
{
    int32_t e = exponent < -400 ? -400 : exponent > 400 ? 400 : exponent;
    return (float)((double)value * as_f64((uint64_t)(e + 1023) << 52));
}

/* ---- transcendental functions -------------------------------------------------------------------------------- */
/* The hardware's are good to about one unit in the last place, and no document gives their bits. These are computed in
 * f64 and rounded once, the same on every machine. Denormal arguments and results count as zeros: LLVM's AMDGPU back end
 * says so of v_rcp_f32 and v_rsq_f32, and scales arguments around the others where denormals matter. */

static inline float flush(float value)
{
    uint32_t bits = as_u32(value);
    return bits & 0x7f800000u ? value : as_f32(bits & 0x80000000u);
}

static inline float f32_rcp(float value)
{
    return flush(1.0f / flush(value));
}

static inline float f32_sqrt(float value)
{
    return sqrtf(flush(value));
}

static inline float f32_rsq(float value)
{
    return (float)(1.0 / sqrt((double)flush(value)));
}

/* 2^x. Taylor's series of e^(f ln 2) for |f| <= 1/2; the first term left out is below 1e-11. */
static inline float f32_exp2(float value)
{
    double x = value < -160.0f ? -160.0 : value > 160.0f ? 160.0 : (double)value;
    double shifted = x + 0x1.8p52;
    double f = x - (shifted - 0x1.8p52);
    double p = 1.0178086009239699e-07;
    p = p * f + 1.3215486790144307e-06;
    p = p * f + 1.5252733804059841e-05;
    p = p * f + 1.5403530393381608e-04;
    p = p * f + 1.3333558146428443e-03;
    p = p * f + 9.6181291076284772e-03;
    p = p * f + 5.5504108664821580e-02;
    p = p * f + 2.4022650695910071e-01;
    p = p * f + 6.9314718055994531e-01;
    p = p * f + 1.0;
    double scale = as_f64(((as_u64(shifted) + 1023u) & 0x7ffu) << 52);
    return value != value ? quiet(value) : flush((float)(p * scale));
}

/* log2(x). With m in [sqrt(1/2), sqrt 2) and s = (m - 1) / (m + 1), log2(m) = 2 / ln 2 * (s + s^3/3 + ...). */
static inline float f32_log2(float value)
{
    uint32_t bits = as_u32(flush(value));
    int32_t exponent = (int32_t)(bits - 0x3f3504f3u) >> 23; /* 0x3f3504f3: sqrt(1/2) */
    double m = (double)as_f32(bits - ((uint32_t)exponent << 23));
    double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 1.0 / 17;
    p = p * z + 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    p = p * z + 1.0;
    uint32_t result = as_u32((float)((double)exponent + 2.8853900817779268 * s * p));
    result = bits == 0x7f800000u ? bits : result;
    result = bits >> 31 ? 0x7fc00000u : result;
    result = (bits & 0x7fffffffu) == 0 ? 0xff800000u : result;
    return as_f32(is_nan_bits(bits) ? bits | 0x00400000u : result);
}

/* ---- division ------------------------------------------------------------------------------------------------ */
/* The three instructions that LLVM puts around an approximate reciprocal. The documents' pseudo-code is not exact about
 * the scales (its post-scale of 2^32 cannot undo a pre-scale of 2^64); what is here is what makes the sequence give the
 * correctly rounded quotient, which the tests check over the whole range. */

static inline int f32_biased_exponent(float value)
{
    return (int)(as_u32(value) >> 23 & 0xff);
}

/* v_div_scale_f32: `value` is the numerator or the denominator, scaled so that the sequence's steps neither overflow
 * nor lose bits. *post_scale tells whether v_div_fmas must undo it. */
static inline float f32_div_scale(float value, float denominator, float numerator, int *post_scale)
{
    int d = f32_biased_exponent(denominator), n = f32_biased_exponent(numerator);
    int is_denominator = as_u32(value) == as_u32(denominator);
    int overflow = n - d >= 96, underflow = fabs((double)numerator / (double)denominator) < 0x1p-126;
    int power = n <= 23 ? 64 : 0; /* remainders of a tiny numerator would be denormal */
    power = underflow ? (is_denominator ? 0 : 64) : power;
    int large = fabsf(denominator) > 0x1p126f; /* the reciprocal would be denormal */
    power = large ? (underflow & !is_denominator ? 0 : -64) : power;
    power = d == 0 ? 64 : power;
    power = overflow ? (is_denominator ? 64 : 0) : power;
    int zero = (denominator == 0.0f) | (numerator == 0.0f);
    *post_scale = zero ? 0 : overflow | (underflow & (d != 0));
    return as_f32(zero ? 0x7fc00000u : as_u32(f32_ldexp(value, power)));
}

/* v_div_fmas_f32: fma(a, b, c), and where the lane's VCC bit says so times 2^64 or 2^-64 in the same rounding: up when
 * c, the quotient so far, is large, down when it is small. Round-to-odd in f64 keeps it one rounding. */
static inline float f32_div_fmas(float a, float b, float c, int post_scale)
{
    if (!post_scale)
        return fmaf(a, b, c);
    double product = (double)a * (double)b, addend = (double)c;
    double sum = product + addend;
    double part = sum - product;
    double error = (product - (sum - part)) + (addend - part);
    if (isfinite(sum) && error != 0 && !(as_u64(sum) & 1)) {
        int away = (error > 0) == (sum > 0);
        sum = as_f64(as_u64(sum) + (away ? 1 : (uint64_t)-1));
    }
    return (float)(sum * (f32_biased_exponent(c) > 127 ? 0x1p64 : 0x1p-64));
}

/* v_div_fixup_f32: the quotient's sign, and the cases that the sequence cannot do. */
static inline float f32_div_fixup(float quotient, float denominator, float numerator)
{
    uint32_t sign = (as_u32(denominator) ^ as_u32(numerator)) & 0x80000000u;
    uint32_t q = as_u32(quotient) & 0x7fffffffu;
    uint32_t below = as_u32(denominator) & 0x7fffffffu, above = as_u32(numerator) & 0x7fffffffu;
    uint32_t result = q > 0x7f800000u ? 0x7f800000u : q; /* the steps overflowed */
    /* below half the smallest denormal */
    result = f32_biased_exponent(numerator) - f32_biased_exponent(denominator) < -150 ? 0 : result;
    result = (below == 0x7f800000u) | (above == 0) ? 0 : result;
    result = (below == 0) | (above == 0x7f800000u) ? 0x7f800000u : result;
    result |= sign;
    result = (above == below) & ((above == 0) | (above == 0x7f800000u)) ? 0xffc00000u : result;
    result = denominator != denominator ? as_u32(quiet(denominator)) : result;
    return as_f32(numerator != numerator ? as_u32(quiet(numerator)) : result);
}

/* ---- f16 ----------------------------------------------------------------------------------------------------- */
/* f64 holds sums and products of f16 with at most a rounding far below half a unit of f16, so the conversion is the only
 * rounding that counts: f32 then f16 would round twice. */

static inline uint32_t f64_to_f16(double value, int overflow_to_max)
{
    float nearest = (float)value;
    double error = value - (double)nearest;
    uint32_t bits = as_u32(nearest);
    if (error != 0 && isfinite(nearest) && !(bits & 1)) /* round to odd, so that the next rounding sees it */
        nearest = as_f32(bits + ((error > 0) == (value > 0) ? 1 : (uint32_t)-1));
    return f32_to_f16(nearest, overflow_to_max);
}

static inline uint32_t f16_add(uint32_t a, uint32_t b, int overflow_to_max)
{
    return f64_to_f16((double)f16_to_f32(a) + (double)f16_to_f32(b), overflow_to_max);
}

static inline uint32_t f16_mul(uint32_t a, uint32_t b, int overflow_to_max)
{
    return f64_to_f16((double)f16_to_f32(a) * (double)f16_to_f32(b), overflow_to_max);
}

static inline uint32_t f16_fma(uint32_t a, uint32_t b, uint32_t c, int overflow_to_max)
{
    double product = (double)f16_to_f32(a) * (double)f16_to_f32(b);
    return f64_to_f16(product + (double)f16_to_f32(c), overflow_to_max);
}

static inline uint32_t f16_min(uint32_t a, uint32_t b)
{
    return f32_to_f16(f32_min(f16_to_f32(a), f16_to_f32(b)), 0);
}

static inline uint32_t f16_max(uint32_t a, uint32_t b)
{
    return f32_to_f16(f32_max(f16_to_f32(a), f16_to_f32(b)), 0);
}

#endif
