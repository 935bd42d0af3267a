/* Short vectors for the matrix instructions: as wide as the target's registers, up to eight values.
 *
 * GCC's and Clang's vector types, so that the speed does not depend on how well loops are recognised. */
#ifndef MONO_EMULATOR_VECTORS_H
#define MONO_EMULATOR_VECTORS_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define WIDTH 8
#else
#define WIDTH 4
#endif

typedef uint32_t u32s __attribute__((vector_size(4 * WIDTH)));
typedef int32_t i32s __attribute__((vector_size(4 * WIDTH)));
typedef float f32s __attribute__((vector_size(4 * WIDTH)));

#define VECTOR_INLINE static inline __attribute__((always_inline))

VECTOR_INLINE u32s load_u32s(const uint32_t *source)
{
    u32s value;
    memcpy(&value, source, sizeof value);
    return value;
}

VECTOR_INLINE f32s load_f32s(const float *source)
{
    f32s value;
    memcpy(&value, source, sizeof value);
    return value;
}

VECTOR_INLINE void store_f32s(float *target, f32s value)
{
    memcpy(target, &value, sizeof value);
}

VECTOR_INLINE u32s all_u32s(uint32_t value)
{
    return value - (u32s){0};
}

VECTOR_INLINE f32s all_f32s(float value)
{
    return value - (f32s){0}; /* value - 0 is value, -0 and NaN included */
}

VECTOR_INLINE u32s choose(i32s condition, u32s yes, u32s no)
{
#if WIDTH == 8
    return (u32s)_mm256_blendv_epi8((__m256i)no, (__m256i)yes, (__m256i)condition);
#else
    return ((u32s)condition & yes) | (~(u32s)condition & no);
#endif
}

/* The same value, held in a register: a compiler that reads it from memory at every use instead spends more on loads
 * than on arithmetic. */
VECTOR_INLINE f32s pinned_f32s(f32s value)
{
#if WIDTH == 8
    __asm__("" : "+x"(value));
#endif
    return value;
}

VECTOR_INLINE f32s to_f32s(u32s small_integers)
{
    return __builtin_convertvector((i32s)small_integers, f32s);
}

/* table[index & 7] */
VECTOR_INLINE u32s lookup(const uint32_t table[8], u32s index)
{
#if WIDTH == 8
    return (u32s)_mm256_permutevar8x32_epi32((__m256i)load_u32s(table), (__m256i)index);
#else
    for (int i = 0; i < WIDTH; i++)
        index[i] = table[index[i] & 7];
    return index;
#endif
}

/* a * b + c with one rounding. */
VECTOR_INLINE f32s fma_f32s(f32s a, f32s b, f32s c)
{
#if WIDTH == 8
    return (f32s)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    for (int i = 0; i < WIDTH; i++)
        c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
#endif
}

#endif
