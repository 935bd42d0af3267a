/* The conversion instructions on whole rows, out of line. `part` and `high` are the instruction's op_sel;
 * `overflow` is FP16_OVFL of the wave's MODE. */
#ifndef MONO_EMULATOR_CONVERSIONS_H
#define MONO_EMULATOR_CONVERSIONS_H

#include "convert.h"
#include "wave.h"

void v_cvt_off_f32_i4(uint32_t *d, const uint32_t *a, const uint32_t *m);
void v_cvt_pk_i16_i32(uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *m);
void v_cvt_pk_u16_u32(uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *m);
void v_cvt_pk_bf16_f32(uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *m, int overflow);
void v_cvt_pk_f16_f32(uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *m, int overflow);
void v_cvt_pkrtz_f16_f32(uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *m);
void v_cvt_f16_f32(uint32_t *d, const uint32_t *a, const uint32_t *m, int overflow);
void v_cvt_f32_f16(uint32_t *d, const uint32_t *a, const uint32_t *m);
void v_cvt_f32_bf16(uint32_t *d, const uint32_t *a, const uint32_t *m);
/* One code, byte `part`, to f32. */
void cvt_f32_small(uint32_t *d, const uint32_t *a, const uint32_t *m, enum small_format format, unsigned part);
/* Two codes to two rows of f32. */
void cvt_pk_f32_small_rows(uint32_t *d, const uint32_t *a, const uint32_t *m, enum small_format format, unsigned part);
void cvt_pk_small_f32_rows(uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *m,
                           enum small_format format, unsigned high, int overflow);
void cvt_scaled_f32_small(uint32_t *d, const uint32_t *a, const uint32_t *scale, const uint32_t *m,
                          enum small_format format, unsigned part);
void cvt_scaled_bf16_small(uint32_t *d, const uint32_t *a, const uint32_t *scale, const uint32_t *m,
                           enum small_format format, unsigned part, int overflow);
void cvt_scaled_f16_small(uint32_t *d, const uint32_t *a, const uint32_t *scale, const uint32_t *m,
                          enum small_format format, unsigned part, int overflow);
void cvt_scaled_small_f32(uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *scale,
                          const uint32_t *m, enum small_format format, unsigned part, int overflow);
void cvt_scaled_small_bf16(uint32_t *d, const uint32_t *a, const uint32_t *scale, const uint32_t *m,
                           enum small_format format, unsigned part, int overflow);
void cvt_scaled_small_f16(uint32_t *d, const uint32_t *a, const uint32_t *scale, const uint32_t *m,
                          enum small_format format, unsigned part, int overflow);

#endif
