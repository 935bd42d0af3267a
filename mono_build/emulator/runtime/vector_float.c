/* Vector instructions on f32 and f64, of whole rows. */
#include <math.h>

#include "vector_kit.h"

/* Float arithmetic. Denormals are kept; rounding is to nearest even (the only MODE these objects ask for). */
FLOAT2(v_add_f32, x + y)
FLOAT2(v_sub_f32, x - y)
FLOAT2(v_subrev_f32, y - x)
FLOAT2(v_mul_f32, x * y)
FLOAT2(v_mul_legacy_f32, x == 0 || y == 0 ? 0.0f : x * y)
FLOAT2(v_min_f32, f32_min(x, y))
FLOAT2(v_max_f32, f32_max(x, y))
FLOAT3(v_fma_f32, __builtin_fmaf(x, y, z))
FLOAT3(v_fmac_f32, __builtin_fmaf(x, y, z))
FLOAT3(v_min3_f32, f32_min3(x, y, z))
FLOAT3(v_max3_f32, f32_max3(x, y, z))
FLOAT3(v_med3_f32, f32_med3(x, y, z))
FLOAT3(v_minimum3_f32, f32_minimum3(x, y, z))
FLOAT3(v_maximum3_f32, f32_maximum3(x, y, z))
FLOAT(v_fract_f32, f32_fract(x))
FLOAT(v_trunc_f32, truncf(x))
FLOAT(v_ceil_f32, ceilf(x))
FLOAT(v_rndne_f32, rintf(x))
FLOAT(v_floor_f32, floorf(x))
FLOAT(v_rcp_f32, f32_rcp(x))
FLOAT(v_rcp_iflag_f32, f32_rcp(x))
FLOAT(v_rsq_f32, f32_rsq(x))
FLOAT(v_sqrt_f32, f32_sqrt(x))
FLOAT(v_exp_f32, f32_exp2(x))
FLOAT(v_log_f32, f32_log2(x))
NARROW(v_ldexp_f32, b32(f32_ldexp(f32(a[i]), S(b[i]))))
NARROW(v_frexp_exp_i32_f32, (uint32_t)f32_frexp_exponent(f32(a[i])))
NARROW(v_frexp_mant_f32, b32(f32_frexp_mantissa(f32(a[i]))))
NARROW(v_cvt_f32_i32, b32((float)S(a[i])))
NARROW(v_cvt_f32_u32, b32((float)a[i]))
NARROW(v_cvt_i32_f32, (uint32_t)f32_to_i32(f32(a[i])))
NARROW(v_cvt_u32_f32, f32_to_u32(f32(a[i])))
NARROW(v_cvt_rpi_i32_f32, (uint32_t)f32_to_i32_nearest_up(f32(a[i])))
NARROW(v_cvt_flr_i32_f32, (uint32_t)f32_to_i32_floor(f32(a[i])))
NARROW(v_cvt_f32_ubyte0, b32((float)(a[i] & 0xFF)))
NARROW(v_cvt_f32_ubyte1, b32((float)(a[i] >> 8 & 0xFF)))
NARROW(v_cvt_f32_ubyte2, b32((float)(a[i] >> 16 & 0xFF)))
NARROW(v_cvt_f32_ubyte3, b32((float)(a[i] >> 24)))

/* The division sequence. a: the operand to scale (denominator or numerator), b: denominator, c: numerator. */
uint64_t v_div_scale_f32(VECTOR_ARGUMENTS)
{
    uint32_t flag[LANES];
    for (int i = 0; i < LANES; i++) {
        int post_scale;
        const float r = f32_div_scale(f32(a[i]), f32(b[i]), f32(c[i]), &post_scale);
        flag[i] = post_scale ? ~0u : 0;
        WRITE(d, b32(r));
    }
    return mask_of(flag);
}

/* The caller puts VCC by lane into the row behind c's. */
void v_div_fmas_f32(VECTOR_ARGUMENTS)
{
    for (int i = 0; i < LANES; i++)
        WRITE(d, b32(f32_div_fmas(f32(a[i]), f32(b[i]), f32(c[i]), c[LANES + i] != 0)));
}

FLOAT3(v_div_fixup_f32, f32_div_fixup(x, y, z))

/* f64. */
LONG(v_add_f64, b64_of(f64(a, i) + f64(b, i)))
LONG(v_mul_f64, b64_of(f64(a, i) * f64(b, i)))
LONG(v_fma_f64, b64_of(fma(f64(a, i), f64(b, i), f64(c, i))))
LONG(v_min_f64, b64_of(fmin(f64(a, i), f64(b, i))))
LONG(v_max_f64, b64_of(fmax(f64(a, i), f64(b, i))))
LONG(v_cvt_f64_f32, b64_of((double)f32(a[i])))
LONG(v_cvt_f64_i32, b64_of((double)S(a[i])))
LONG(v_cvt_f64_u32, b64_of((double)a[i]))

static inline int32_t double_to_i32(double x)
{
    if (x != x)
        return 0;
    if (x >= 2147483647.0)
        return INT32_MAX;
    return x <= -2147483648.0 ? INT32_MIN : (int32_t)x;
}

static inline uint32_t double_to_u32(double x)
{
    if (!(x > 0))
        return 0;
    return x >= 4294967295.0 ? UINT32_MAX : (uint32_t)x;
}

NARROW(v_cvt_f32_f64, b32((float)f64(a, i)))
NARROW(v_cvt_i32_f64, (uint32_t)double_to_i32(f64(a, i)))
NARROW(v_cvt_u32_f64, double_to_u32(f64(a, i)))
