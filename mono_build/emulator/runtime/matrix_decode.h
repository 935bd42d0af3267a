/* The operands of matrix instructions: registers of 64 lanes to rows of f32.
 *
 * One layout rule covers every dense shape that is modelled (CDNA3 and CDNA4 ISA documents, chapter on matrix
 * arithmetic; AMD's matrix instruction calculator). A (M x K) and B (K x N) are held alike. With `dim` rows of A or
 * columns of B, lane l belongs to row or column l % dim and to K group l / dim of 64 / dim. A group's elements lie in
 * its registers from the lowest bit of the first one up, and element e of group g is
 *
 *     K = g * per_group + e                                                    per_group = K_total * dim / 64
 *     K = (e / 16 * groups + g) * 16 + e % 16       for 8-bit formats with more than 16 elements a lane (f8f6f4)
 */
#ifndef MONO_EMULATOR_MATRIX_DECODE_H
#define MONO_EMULATOR_MATRIX_DECODE_H

#include "convert.h"
#include "vectors.h"

/* The 8- and 4-bit formats have the numbers of `enum small_format`. */
enum matrix_format {
    MATRIX_E4M3 = E4M3,
    MATRIX_E5M2 = E5M2,
    MATRIX_E4M3_FNUZ = E4M3_FNUZ,
    MATRIX_E5M2_FNUZ = E5M2_FNUZ,
    MATRIX_E2M1 = E2M1,
    MATRIX_F16,
    MATRIX_BF16,
    MATRIX_F32
};

VECTOR_INLINE int matrix_bits(enum matrix_format format)
{
    return format == MATRIX_F32 ? 32 : format >= MATRIX_F16 ? 16 : format == MATRIX_E2M1 ? 4 : 8;
}

/* formats.h's decoders, several lanes at once. */
VECTOR_INLINE u32s small_bits(u32s magnitude, int mantissa_bits, int bias)
{
    u32s normal = (magnitude << (23 - mantissa_bits)) + ((uint32_t)(127 - bias) << 23);
    u32s denormal = (u32s)(to_f32s(magnitude) * as_f32((uint32_t)(127 + 1 - bias - mantissa_bits) << 23));
    return choose((i32s)magnitude < (1 << mantissa_bits), denormal, normal);
}

/* 0, 0.5, 1, 1.5, 2, 3, 4, 6 */
static const uint32_t e2m1_magnitudes[8] = {0,           0x3f000000u, 0x3f800000u, 0x3fc00000u,
                                            0x40000000u, 0x40400000u, 0x40800000u, 0x40c00000u};

VECTOR_INLINE u32s matrix_elements(enum matrix_format format, u32s code)
{
    const u32s nan = all_u32s(0x7fc00000u), magnitude = code & 0x7fu, sign = (code & 0x80u) << 24;
    u32s bits, half;
    switch (format) {
    case MATRIX_F32:
        return code;
    case MATRIX_BF16:
        return code << 16;
    case MATRIX_F16:
        half = code & 0x7fffu;
        bits = 0x7f800000u | (half & 0x3ffu) << 13;
        return choose((i32s)half >= 0x7c00, bits, small_bits(half, 10, 15)) | (code & 0x8000u) << 16;
    case MATRIX_E4M3:
        return choose((i32s)magnitude == 0x7f, nan, small_bits(magnitude, 3, 7)) | sign;
    case MATRIX_E5M2:
        bits = choose((i32s)magnitude == 0x7c, all_u32s(0x7f800000u), nan);
        return choose((i32s)magnitude >= 0x7c, bits, small_bits(magnitude, 2, 15)) | sign;
    case MATRIX_E4M3_FNUZ:
        return choose((i32s)code == 0x80, nan, small_bits(magnitude, 3, 8) | sign);
    case MATRIX_E5M2_FNUZ:
        return choose((i32s)code == 0x80, nan, small_bits(magnitude, 2, 16) | sign);
    default:
        return lookup(e2m1_magnitudes, code) | (code & 8u) << 28;
    }
}

/* out[k * dim + i] from `registers` of 64 lanes; `format`, `depth` (K) and `dim` are constants of the caller. */
VECTOR_INLINE void matrix_decode(enum matrix_format format, int depth, int dim, const uint32_t (*registers)[64],
                                 float *out)
{
    const int groups = 64 / dim, per_group = depth / groups, bits = matrix_bits(format);
    const int chunked = bits == 8 && per_group > 16;
    const uint32_t mask = bits == 32 ? 0xffffffffu : (1u << (bits & 31)) - 1;
    for (int e = 0; e < per_group; e++) {
        const uint32_t *source = registers[e * bits / 32];
        const int shift = e * bits % 32;
        for (int g = 0; g < groups; g++) {
            const int k = chunked ? (e / 16 * groups + g) * 16 + e % 16 : g * per_group + e;
            for (int i = 0; i < dim; i += WIDTH) {
                u32s elements = matrix_elements(format, load_u32s(source + g * dim + i) >> shift & mask);
                memcpy(out + k * dim + i, &elements, sizeof elements);
            }
        }
    }
}

#endif
