/* The matrix instructions (MFMA): D = A * B + C over a wave. EXEC does not count for them.
 *
 * Operand layouts: matrix_decode.h. C and D are f32: with N columns, lane l holds column l % N, and register r of it is
 * row 8 * (r / 4) + 4 * (l / 32) + r % 4 for N = 32, row 4 * (l / 16) + r for N = 16.
 *
 * Every function takes (d, a, b, c, splat): registers of 64 lanes, and what C is everywhere when `c` is NULL. All is
 * read before anything is written, so operands may overlap.
 *
 * Sums are in f32: without scales from C on in ascending K, a fused multiply-add each; with scales each block of 32
 * from zero in ascending K, then times 2^(sum of the codes - 254), then added to C block after block. Hardware's order
 * and its inner precision are not documented: compare within a tolerance. Denormals count. */
#ifndef MONO_EMULATOR_MATRIX_H
#define MONO_EMULATOR_MATRIX_H

#include "matrix_decode.h"

typedef const uint32_t (*matrix_source)[64];
typedef uint32_t (*matrix_target)[64];

#define MATRIX_FUNCTION static __attribute__((noinline, unused)) void

/* The largest operand (K x rows) and result. */
#define MATRIX_OPERAND 2048
#define MATRIX_RESULT 1024

/* ---- accumulators -------------------------------------------------------------------------------------------- */

VECTOR_INLINE int matrix_row(int dim, int r, int group)
{
    return (r / 4 * (64 / dim) + group) * 4 + r % 4;
}

VECTOR_INLINE void matrix_load_c(int dim, matrix_source c, uint32_t splat, float *out)
{
    if (!c) {
        for (int i = 0; i < dim * dim; i += WIDTH)
            store_f32s(out + i, all_f32s(as_f32(splat)));
        return;
    }
    for (int r = 0; r < dim * dim / 64; r++)
        for (int g = 0; g < 64 / dim; g++)
            memcpy(out + matrix_row(dim, r, g) * dim, &c[r][g * dim], (size_t)dim * 4);
}

VECTOR_INLINE void matrix_store_d(int dim, const float *values, matrix_target d)
{
    for (int r = 0; r < dim * dim / 64; r++)
        for (int g = 0; g < 64 / dim; g++)
            memcpy(&d[r][g * dim], values + matrix_row(dim, r, g) * dim, (size_t)dim * 4);
}

/* ---- products ------------------------------------------------------------------------------------------------ */

/* sums[4 rows][16 columns] += a[k][row] * b[k][column] in ascending k. `stride` is the distance between two k. */
VECTOR_INLINE void matrix_tile(int depth, int stride, const float *a, const float *b, f32s sums[4][16 / WIDTH])
{
    for (int k = 0; k < depth; k++) {
        f32s columns[16 / WIDTH];
#pragma GCC unroll 4
        for (int j = 0; j < 16 / WIDTH; j++)
            columns[j] = pinned_f32s(load_f32s(b + k * stride + j * WIDTH));
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const f32s factor = all_f32s(a[k * stride + i]);
#pragma GCC unroll 4
            for (int j = 0; j < 16 / WIDTH; j++)
                sums[i][j] = fma_f32s(factor, columns[j], sums[i][j]);
        }
    }
}

VECTOR_INLINE void matrix_multiply(int depth, int dim, const float *a, const float *b, float *acc)
{
    for (int row = 0; row < dim; row += 4)
        for (int column = 0; column < dim; column += 16) {
            f32s sums[4][16 / WIDTH];
            float *target = acc + row * dim + column;
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
                for (int j = 0; j < 16 / WIDTH; j++)
                    sums[i][j] = load_f32s(target + i * dim + j * WIDTH);
            matrix_tile(depth, dim, a + row, b + column, sums);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
                for (int j = 0; j < 16 / WIDTH; j++)
                    store_f32s(target + i * dim + j * WIDTH, sums[i][j]);
        }
}

/* One block's scale exponents by row or column, and bits that make a factor NaN where the code is 255. */
struct matrix_scales {
    uint32_t exponent[32];
    uint32_t nan[32];
};

VECTOR_INLINE void matrix_scales_of(int dim, const uint32_t *lanes, unsigned byte, int block, struct matrix_scales *out)
{
    for (int i = 0; i < dim; i++) {
        uint32_t code = lanes[block * dim + i] >> (8 * byte) & 0xffu;
        out->exponent[i] = code - 127u;
        out->nan[i] = code == 255u ? 0x7fc00000u : 0;
    }
}

/* acc += sums * 2^(row's + column's exponent). The power is applied in two halves, since it can lie outside of f32's
 * exponents when the product does not; only a result that is denormal is rounded. */
VECTOR_INLINE void matrix_add_scaled(int dim, int row, int column, const struct matrix_scales *a,
                                     const struct matrix_scales *b, f32s sums[4][16 / WIDTH], float *target)
{
#pragma GCC unroll 4
    for (int j = 0; j < 16 / WIDTH; j++) {
        const u32s exponents = load_u32s(b->exponent + column + j * WIDTH), nans = load_u32s(b->nan + column + j * WIDTH);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const i32s power = (i32s)(exponents + a->exponent[row + i]), half = power >> 1;
            const f32s first = (f32s)((u32s)(half + 127) << 23);
            const f32s second = (f32s)((u32s)(power - half + 127) << 23 | nans | a->nan[row + i]);
            float *place = target + i * dim + j * WIDTH;
            store_f32s(place, load_f32s(place) + sums[i][j] * first * second);
        }
    }
}

VECTOR_INLINE void matrix_multiply_scaled(int depth, int dim, const float *a, const float *b, const uint32_t *scale_a,
                                          unsigned byte_a, const uint32_t *scale_b, unsigned byte_b, float *acc)
{
    for (int block = 0; block < depth / 32; block++) {
        struct matrix_scales rows, columns;
        matrix_scales_of(dim, scale_a, byte_a, block, &rows);
        matrix_scales_of(dim, scale_b, byte_b, block, &columns);
        for (int row = 0; row < dim; row += 4)
            for (int column = 0; column < dim; column += 16) {
                f32s sums[4][16 / WIDTH] = {{{0}}};
                const int start = block * 32 * dim;
                matrix_tile(32, dim, a + start + row, b + start + column, sums);
                matrix_add_scaled(dim, row, column, &rows, &columns, sums, acc + row * dim + column);
            }
    }
}

/* ---- instructions -------------------------------------------------------------------------------------------- */

#define MFMA(name, dim, depth, format_a, format_b)                                                                  \
    MATRIX_FUNCTION name(matrix_target d, matrix_source a, matrix_source b, matrix_source c, uint32_t splat)        \
    {                                                                                                               \
        _Alignas(32) float rows[MATRIX_OPERAND], columns[MATRIX_OPERAND], acc[MATRIX_RESULT];                       \
        matrix_decode(format_a, depth, dim, a, rows);                                                               \
        matrix_decode(format_b, depth, dim, b, columns);                                                            \
        matrix_load_c(dim, c, splat, acc);                                                                          \
        matrix_multiply(depth, dim, rows, columns, acc);                                                            \
        matrix_store_d(dim, acc, d);                                                                                \
    }

MFMA(mfma_f32_16x16x4_f32, 16, 4, MATRIX_F32, MATRIX_F32)
MFMA(mfma_f32_32x32x2_f32, 32, 2, MATRIX_F32, MATRIX_F32)
MFMA(mfma_f32_16x16x16_f16, 16, 16, MATRIX_F16, MATRIX_F16)
MFMA(mfma_f32_32x32x8_f16, 32, 8, MATRIX_F16, MATRIX_F16)
MFMA(mfma_f32_16x16x16_bf16, 16, 16, MATRIX_BF16, MATRIX_BF16)
MFMA(mfma_f32_32x32x8_bf16, 32, 8, MATRIX_BF16, MATRIX_BF16)
/* gfx950 */
MFMA(mfma_f32_16x16x32_f16, 16, 32, MATRIX_F16, MATRIX_F16)
MFMA(mfma_f32_32x32x16_f16, 32, 16, MATRIX_F16, MATRIX_F16)
MFMA(mfma_f32_16x16x32_bf16, 16, 32, MATRIX_BF16, MATRIX_BF16)
MFMA(mfma_f32_32x32x16_bf16, 32, 16, MATRIX_BF16, MATRIX_BF16)

/* fp8 is e4m3 and bf8 is e5m2: OCP on gfx950, FNUZ on gfx942. */
#define MFMA_SMALL(shape, dim, depth)                                                                               \
    MFMA(mfma_f32_##shape##_fp8_fp8, dim, depth, MATRIX_E4M3, MATRIX_E4M3)                                          \
    MFMA(mfma_f32_##shape##_fp8_bf8, dim, depth, MATRIX_E4M3, MATRIX_E5M2)                                          \
    MFMA(mfma_f32_##shape##_bf8_fp8, dim, depth, MATRIX_E5M2, MATRIX_E4M3)                                          \
    MFMA(mfma_f32_##shape##_bf8_bf8, dim, depth, MATRIX_E5M2, MATRIX_E5M2)                                          \
    MFMA(mfma_f32_##shape##_fp8_fp8_fnuz, dim, depth, MATRIX_E4M3_FNUZ, MATRIX_E4M3_FNUZ)                           \
    MFMA(mfma_f32_##shape##_fp8_bf8_fnuz, dim, depth, MATRIX_E4M3_FNUZ, MATRIX_E5M2_FNUZ)                           \
    MFMA(mfma_f32_##shape##_bf8_fp8_fnuz, dim, depth, MATRIX_E5M2_FNUZ, MATRIX_E4M3_FNUZ)                           \
    MFMA(mfma_f32_##shape##_bf8_bf8_fnuz, dim, depth, MATRIX_E5M2_FNUZ, MATRIX_E5M2_FNUZ)

MFMA_SMALL(16x16x32, 16, 32)
MFMA_SMALL(32x32x16, 32, 16)

/* f8f6f4 (gfx950): the instruction's fields CBSZ and BLGP give the formats of A and B: 0 e4m3, 1 e5m2, 4 e2m1. The
 * 6-bit formats 2 and 3 are not modelled; the translator must not let them come here. */
#define MFMA_F8F6F4(shape, dim, depth)                                                                              \
    MATRIX_FUNCTION matrix_decode_##shape(unsigned format, matrix_source registers, float *out)                     \
    {                                                                                                               \
        if (format == 0)                                                                                            \
            matrix_decode(MATRIX_E4M3, depth, dim, registers, out);                                                 \
        else if (format == 1)                                                                                       \
            matrix_decode(MATRIX_E5M2, depth, dim, registers, out);                                                 \
        else                                                                                                        \
            matrix_decode(MATRIX_E2M1, depth, dim, registers, out);                                                 \
    }                                                                                                               \
    MATRIX_FUNCTION mfma_f32_##shape##_f8f6f4(matrix_target d, matrix_source a, matrix_source b, matrix_source c,   \
                                              uint32_t splat, unsigned cbsz, unsigned blgp)                         \
    {                                                                                                               \
        _Alignas(32) float rows[MATRIX_OPERAND], columns[MATRIX_OPERAND], acc[MATRIX_RESULT];                       \
        matrix_decode_##shape(cbsz, a, rows);                                                                       \
        matrix_decode_##shape(blgp, b, columns);                                                                    \
        matrix_load_c(dim, c, splat, acc);                                                                          \
        matrix_multiply(depth, dim, rows, columns, acc);                                                            \
        matrix_store_d(dim, acc, d);                                                                                \
    }                                                                                                               \
    /* The scale of row or column i and of the block of K 32 g to 32 g + 31 is the byte `byte_a` or `byte_b` of     \
     * lane g * dim + i, whichever lane holds the elements. */                                                      \
    MATRIX_FUNCTION mfma_scale_f32_##shape##_f8f6f4(                                                                \
        matrix_target d, matrix_source a, matrix_source b, matrix_source c, uint32_t splat, unsigned cbsz,          \
        unsigned blgp, const uint32_t *scale_a, unsigned byte_a, const uint32_t *scale_b, unsigned byte_b)          \
    {                                                                                                               \
        _Alignas(32) float rows[MATRIX_OPERAND], columns[MATRIX_OPERAND], acc[MATRIX_RESULT];                       \
        matrix_decode_##shape(cbsz, a, rows);                                                                       \
        matrix_decode_##shape(blgp, b, columns);                                                                    \
        matrix_load_c(dim, c, splat, acc);                                                                          \
        matrix_multiply_scaled(depth, dim, rows, columns, scale_a, byte_a, scale_b, byte_b, acc);                   \
        matrix_store_d(dim, acc, d);                                                                                \
    }

MFMA_F8F6F4(16x16x128, 16, 128)
MFMA_F8F6F4(32x32x64, 32, 64)

#endif
