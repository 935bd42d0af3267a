/* The conversion instructions on whole rows; see conversions.h. */
#include "conversions.h"

#include "numeric.h"

#define EACH _Pragma("GCC ivdep") for (int i = 0; i < LANES; i++)
#define WRITE(row_, value)                           \
    do {                                             \
        const uint32_t r_ = (value);                 \
        (row_)[i] = m[i] ? r_ : (row_)[i];           \
    } while (0)
/* Run `statement` with `format` a constant, so that the loops are made for each format. */
#define WITH(value, statement) case value: { const enum small_format fixed = value; statement; break; }
#define FORMATS(statement)                                                                \
    switch (format) {                                                                     \
    WITH(E4M3, statement) WITH(E5M2, statement) WITH(E4M3_FNUZ, statement)                \
    WITH(E5M2_FNUZ, statement) WITH(E2M1, statement)                                      \
    }

void v_cvt_off_f32_i4(uint32_t *d, const uint32_t *a, const uint32_t *m)
{
    EACH WRITE(d, as_u32(i4_to_f32_offset(a[i])));
}

void v_cvt_pk_i16_i32(uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *m)
{
    EACH WRITE(d, pack16(i32_to_i16_saturated((int32_t)a[i]), i32_to_i16_saturated((int32_t)b[i])));
}

void v_cvt_pk_u16_u32(uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *m)
{
    EACH WRITE(d, pack16(u32_to_u16_saturated(a[i]), u32_to_u16_saturated(b[i])));
}

void v_cvt_pk_bf16_f32(uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *m, int overflow)
{
    EACH WRITE(d, cvt_pk_bf16_f32(as_f32(a[i]), as_f32(b[i]), overflow));
}

void v_cvt_pk_f16_f32(uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *m, int overflow)
{
    EACH WRITE(d, cvt_pk_f16_f32(as_f32(a[i]), as_f32(b[i]), overflow));
}

void v_cvt_pkrtz_f16_f32(uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *m)
{
    EACH WRITE(d, cvt_pkrtz_f16_f32(as_f32(a[i]), as_f32(b[i])));
}

void v_cvt_f16_f32(uint32_t *d, const uint32_t *a, const uint32_t *m, int overflow)
{
    EACH WRITE(d, f32_to_f16(as_f32(a[i]), overflow));
}

void v_cvt_f32_f16(uint32_t *d, const uint32_t *a, const uint32_t *m)
{
    EACH WRITE(d, as_u32(f16_to_f32(a[i] & 0xFFFFu)));
}

void v_cvt_f32_bf16(uint32_t *d, const uint32_t *a, const uint32_t *m)
{
    EACH WRITE(d, a[i] << 16);
}

void cvt_f32_small(uint32_t *d, const uint32_t *a, const uint32_t *m, enum small_format format, unsigned part)
{
    FORMATS(EACH WRITE(d, as_u32(small_to_f32(fixed, a[i] >> (8 * part) & 0xFFu))))
}

void cvt_pk_f32_small_rows(uint32_t *d, const uint32_t *a, const uint32_t *m, enum small_format format, unsigned part)
{
    row low, high; /* a's row may be one of d's */
    FORMATS(EACH {
        low[i] = as_u32(small_to_f32(fixed, small_code_at(fixed, a[i], part, 0)));
        high[i] = as_u32(small_to_f32(fixed, small_code_at(fixed, a[i], part, 1)));
    })
    EACH WRITE(d, low[i]);
    EACH WRITE(d + LANES, high[i]);
}

void cvt_pk_small_f32_rows(uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *m,
                           enum small_format format, unsigned high, int overflow)
{
    FORMATS(EACH WRITE(d, cvt_pk_small_f32(fixed, d[i], high, as_f32(a[i]), as_f32(b[i]), overflow)))
}

void cvt_scaled_f32_small(uint32_t *d, const uint32_t *a, const uint32_t *scale, const uint32_t *m,
                          enum small_format format, unsigned part)
{
    row low, high;
    FORMATS(EACH {
        low[i] = as_u32(cvt_scalef32_f32_small(fixed, a[i], part, 0, scale[i]));
        high[i] = as_u32(cvt_scalef32_f32_small(fixed, a[i], part, 1, scale[i]));
    })
    EACH WRITE(d, low[i]);
    EACH WRITE(d + LANES, high[i]);
}

void cvt_scaled_bf16_small(uint32_t *d, const uint32_t *a, const uint32_t *scale, const uint32_t *m,
                           enum small_format format, unsigned part, int overflow)
{
    FORMATS(EACH WRITE(d, cvt_scalef32_pk_bf16_small(fixed, a[i], part, scale[i], overflow)))
}

void cvt_scaled_f16_small(uint32_t *d, const uint32_t *a, const uint32_t *scale, const uint32_t *m,
                          enum small_format format, unsigned part, int overflow)
{
    FORMATS(EACH WRITE(d, cvt_scalef32_pk_f16_small(fixed, a[i], part, scale[i], overflow)))
}

void cvt_scaled_small_f32(uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *scale,
                          const uint32_t *m, enum small_format format, unsigned part, int overflow)
{
    FORMATS(EACH WRITE(d, cvt_scalef32_pk_small_f32(fixed, d[i], part, as_f32(a[i]), as_f32(b[i]),
                                                    scale[i], overflow)))
}

void cvt_scaled_small_bf16(uint32_t *d, const uint32_t *a, const uint32_t *scale, const uint32_t *m,
                           enum small_format format, unsigned part, int overflow)
{
    FORMATS(EACH WRITE(d, cvt_scalef32_pk_small_bf16(fixed, d[i], part, a[i], scale[i], overflow)))
}

void cvt_scaled_small_f16(uint32_t *d, const uint32_t *a, const uint32_t *scale, const uint32_t *m,
                          enum small_format format, unsigned part, int overflow)
{
    FORMATS(EACH WRITE(d, cvt_scalef32_pk_small_f16(fixed, d[i], part, a[i], scale[i], overflow)))
}
