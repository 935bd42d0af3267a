/* The matrix instructions, out of line; `c` NULL: `splat` in every element. See matrix.h. */
#ifndef MONO_EMULATOR_MFMA_H
#define MONO_EMULATOR_MFMA_H

#include "wave.h"

#define MFMA_SMALL_LIST(X, shape)                                                          \
    X(f32_##shape##_fp8_fp8) X(f32_##shape##_fp8_bf8) X(f32_##shape##_bf8_fp8)             \
    X(f32_##shape##_bf8_bf8) X(f32_##shape##_fp8_fp8_fnuz) X(f32_##shape##_fp8_bf8_fnuz)   \
    X(f32_##shape##_bf8_fp8_fnuz) X(f32_##shape##_bf8_bf8_fnuz)
#define MFMA_LIST(X)                                                                       \
    X(f32_16x16x4_f32) X(f32_32x32x2_f32) X(f32_16x16x16_f16) X(f32_32x32x8_f16)           \
    X(f32_16x16x16_bf16) X(f32_32x32x8_bf16) X(f32_16x16x32_f16) X(f32_32x32x16_f16)       \
    X(f32_16x16x32_bf16) X(f32_32x32x16_bf16)                                              \
    MFMA_SMALL_LIST(X, 16x16x32) MFMA_SMALL_LIST(X, 32x32x16)
#define MFMA_SHAPES(X) X(16x16x128) X(32x32x64)

#define DECLARE(name) \
    void v_mfma_##name(row *d, const row *a, const row *b, const row *c, uint32_t splat);
MFMA_LIST(DECLARE)
#undef DECLARE
#define DECLARE(shape)                                                                     \
    void v_mfma_f32_##shape##_f8f6f4(row *d, const row *a, const row *b, const row *c,     \
                                     uint32_t splat, unsigned cbsz, unsigned blgp);        \
    void v_mfma_scale_f32_##shape##_f8f6f4(                                                \
        row *d, const row *a, const row *b, const row *c, uint32_t splat, unsigned cbsz,   \
        unsigned blgp, const uint32_t *scale_a, unsigned byte_a, const uint32_t *scale_b,  \
        unsigned byte_b);
MFMA_SHAPES(DECLARE)
#undef DECLARE

#endif
