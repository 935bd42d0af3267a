/* Vector integer and float arithmetic, comparisons and lane moves, on whole rows. */
#include "vector.h"

#include <math.h>
#include <string.h>

#include "numeric.h"

/* The operands of one lane never depend on the result of another, also when rows are the same. */
#define EACH _Pragma("GCC ivdep") for (int i = 0; i < LANES; i++)

#define f32 as_f32
#define b32 as_u32
#define b64_of as_u64

static inline uint64_t b64(const uint32_t *rows, int i)
{
    return (uint64_t)rows[LANES + i] << 32 | rows[i];
}

static inline double f64(const uint32_t *rows, int i)
{
    return as_f64(b64(rows, i));
}

#define WRITE(row_, value)                                  \
    do {                                                    \
        uint32_t r_ = (value);                              \
        (row_)[i] = m[i] ? r_ : (row_)[i];                  \
    } while (0)
#define WRITE64(value)                                      \
    do {                                                    \
        uint64_t r64_ = (value);                            \
        WRITE(d, (uint32_t)r64_);                           \
        WRITE(d + LANES, (uint32_t)(r64_ >> 32));           \
    } while (0)
#define UNUSED (void)a, (void)b, (void)c
/* x, y and z are the operands of one lane. */
#define BITS(name, value)                                            \
    void name(VECTOR_ARGUMENTS)                                      \
    {                                                                \
        UNUSED;                                                      \
        EACH                                                         \
        {                                                            \
            const uint32_t x = a[i];                                 \
            WRITE(d, value);                                         \
        }                                                            \
    }
#define BITS2(name, value)                                           \
    void name(VECTOR_ARGUMENTS)                                      \
    {                                                                \
        UNUSED;                                                      \
        EACH                                                         \
        {                                                            \
            const uint32_t x = a[i], y = b[i];                       \
            WRITE(d, value);                                         \
        }                                                            \
    }
#define BITS3(name, value)                                           \
    void name(VECTOR_ARGUMENTS)                                      \
    {                                                                \
        EACH                                                         \
        {                                                            \
            const uint32_t x = a[i], y = b[i], z = c[i];             \
            WRITE(d, value);                                         \
        }                                                            \
    }
#define FLOAT(name, value)                                           \
    void name(VECTOR_ARGUMENTS)                                      \
    {                                                                \
        UNUSED;                                                      \
        EACH                                                         \
        {                                                            \
            const float x = f32(a[i]);                               \
            WRITE(d, b32(value));                                    \
        }                                                            \
    }
#define FLOAT2(name, value)                                          \
    void name(VECTOR_ARGUMENTS)                                      \
    {                                                                \
        UNUSED;                                                      \
        EACH                                                         \
        {                                                            \
            const float x = f32(a[i]), y = f32(b[i]);                \
            WRITE(d, b32(value));                                    \
        }                                                            \
    }
#define FLOAT3(name, value)                                          \
    void name(VECTOR_ARGUMENTS)                                      \
    {                                                                \
        EACH                                                         \
        {                                                            \
            const float x = f32(a[i]), y = f32(b[i]), z = f32(c[i]); \
            WRITE(d, b32(value));                                    \
        }                                                            \
    }
#define S(x) ((int32_t)(x))
#define S16(x) ((int32_t)(int16_t)(x))
#define U16(x) ((x) & 0xFFFFu)
#define I24(x) ((int32_t)((x) << 8) >> 8)
#define U24(x) ((x) & 0xFFFFFFu)

static inline uint32_t reverse(uint32_t x)
{
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0F0F0F0Fu) | (x & 0x0F0F0F0Fu) << 4;
    return __builtin_bswap32(x);
}

static inline uint32_t bfe_signed(uint32_t x, uint32_t offset, uint32_t width)
{
    offset &= 31;
    width &= 31;
    if (width == 0)
        return 0;
    if (offset + width >= 32)
        return (uint32_t)(S(x) >> offset);
    return (uint32_t)(S(x << (32 - offset - width)) >> (32 - width));
}

/* One byte of v_perm_b32: 0-3 from y, 4-7 from x, 8-11 a sign, 12 zero, above: ones. */
static inline uint32_t permuted(uint32_t x, uint32_t y, uint32_t select)
{
    uint64_t both = (uint64_t)x << 32 | y;
    if (select < 8)
        return (uint32_t)(both >> (8 * select)) & 0xFF;
    if (select < 12)
        return (both >> (16 * (select - 8) + 15) & 1) ? 0xFF : 0;
    return select == 12 ? 0 : 0xFF;
}

/* Moves and bits. */
BITS(v_mov_b32, x)
BITS(v_not_b32, ~x)
BITS(v_bfrev_b32, reverse(x))
BITS(v_ffbh_u32, x ? (uint32_t)__builtin_clz(x) : ~0u)
BITS(v_ffbl_b32, x ? (uint32_t)__builtin_ctz(x) : ~0u)
BITS(v_ffbh_i32, (x ^ (uint32_t)(S(x) >> 31)) ? (uint32_t)__builtin_clz(x ^ (uint32_t)(S(x) >> 31)) : ~0u)
/* c: the condition by lane. */
BITS3(v_cndmask_b32, z ? y : x)
BITS2(v_and_b32, x & y)
BITS2(v_or_b32, x | y)
BITS2(v_xor_b32, x ^ y)
BITS2(v_xnor_b32, ~(x ^ y))
BITS2(v_lshlrev_b32, y << (x & 31))
BITS2(v_lshrrev_b32, y >> (x & 31))
BITS2(v_ashrrev_i32, (uint32_t)(S(y) >> (x & 31)))
BITS3(v_bfe_u32, (x >> (y & 31)) & ((1u << (z & 31)) - 1))
BITS3(v_bfi_b32, (x & y) | (~x & z))
BITS2(v_bfm_b32, ((1u << (x & 31)) - 1) << (y & 31))
BITS2(v_bcnt_u32_b32, (uint32_t)__builtin_popcount(x) + y)
BITS3(v_alignbit_b32, (uint32_t)(((uint64_t)x << 32 | y) >> (z & 31)))
BITS3(v_alignbyte_b32, (uint32_t)(((uint64_t)x << 32 | y) >> (8 * (z & 3))))
BITS3(v_add3_u32, x + y + z)
BITS3(v_add_lshl_u32, (x + y) << (z & 31))
BITS3(v_lshl_add_u32, (x << (y & 31)) + z)
BITS3(v_lshl_or_b32, (x << (y & 31)) | z)
BITS3(v_and_or_b32, (x & y) | z)
BITS3(v_or3_b32, x | y | z)
BITS3(v_xad_u32, (x ^ y) + z)

void v_bfe_i32(VECTOR_ARGUMENTS)
{
    for (int i = 0; i < LANES; i++)
        WRITE(d, bfe_signed(a[i], b[i], c[i]));
}

void v_perm_b32(VECTOR_ARGUMENTS)
{
    for (int i = 0; i < LANES; i++) {
        const uint32_t x = a[i], y = b[i], z = c[i];
        uint32_t r = 0;
        for (int k = 0; k < 4; k++)
            r |= permuted(x, y, z >> (8 * k) & 0xFF) << (8 * k);
        WRITE(d, r);
    }
}

void v_sad_u8(VECTOR_ARGUMENTS)
{
    for (int i = 0; i < LANES; i++) {
        uint32_t r = c[i];
        for (int k = 0; k < 32; k += 8) {
            uint32_t x = a[i] >> k & 0xFF, y = b[i] >> k & 0xFF;
            r += x > y ? x - y : y - x;
        }
        WRITE(d, r);
    }
}

/* Integer arithmetic. */
BITS3(v_sad_u32, (x > y ? x - y : y - x) + z)
BITS2(v_add_u32, x + y)
BITS2(v_sub_u32, x - y)
BITS2(v_subrev_u32, y - x)
BITS2(v_add_i32, x + y)
BITS2(v_sub_i32, x - y)
BITS2(v_mul_lo_u32, x * y)
BITS2(v_mul_hi_u32, (uint32_t)((uint64_t)x * y >> 32))
BITS2(v_mul_hi_i32, (uint32_t)((int64_t)S(x) * S(y) >> 32))
BITS2(v_mul_i32_i24, (uint32_t)I24(x) * (uint32_t)I24(y))
BITS2(v_mul_u32_u24, U24(x) * U24(y))
BITS2(v_mul_hi_i32_i24, (uint32_t)((int64_t)I24(x) * I24(y) >> 32))
BITS2(v_mul_hi_u32_u24, (uint32_t)((uint64_t)U24(x) * U24(y) >> 32))
BITS3(v_mad_i32_i24, (uint32_t)I24(x) * (uint32_t)I24(y) + z)
BITS3(v_mad_u32_u24, U24(x) * U24(y) + z)
#define LESS(x, y) ((x) < (y) ? (x) : (y))
#define MORE(x, y) ((x) > (y) ? (x) : (y))
#define MIDDLE(x, y, z) MORE(LESS(x, y), LESS(MORE(x, y), z))
BITS2(v_min_i32, (uint32_t)LESS(S(x), S(y)))
BITS2(v_max_i32, (uint32_t)MORE(S(x), S(y)))
BITS2(v_min_u32, LESS(x, y))
BITS2(v_max_u32, MORE(x, y))
BITS3(v_min3_i32, (uint32_t)LESS(LESS(S(x), S(y)), S(z)))
BITS3(v_max3_i32, (uint32_t)MORE(MORE(S(x), S(y)), S(z)))
BITS3(v_med3_i32, (uint32_t)MIDDLE(S(x), S(y), S(z)))
BITS3(v_min3_u32, LESS(LESS(x, y), z))
BITS3(v_max3_u32, MORE(MORE(x, y), z))
BITS3(v_med3_u32, MIDDLE(x, y, z))

/* 16 bits: on CDNA these clear the upper half of the result (CDNA3 ISA, 16-bit operands). */
BITS2(v_add_u16, U16(x + y))
BITS2(v_sub_u16, U16(x - y))
BITS2(v_subrev_u16, U16(y - x))
BITS2(v_mul_lo_u16, U16(U16(x) * U16(y)))
BITS3(v_mad_u16, U16(U16(x) * U16(y) + z))
BITS3(v_mad_legacy_u16, U16(U16(x) * U16(y) + z))
BITS2(v_lshlrev_b16, U16(y << (x & 15)))
BITS2(v_lshrrev_b16, U16(y) >> (x & 15))
BITS2(v_ashrrev_i16, U16((uint32_t)(S16(y) >> (x & 15))))
BITS2(v_min_u16, LESS(U16(x), U16(y)))
BITS2(v_max_u16, MORE(U16(x), U16(y)))
BITS2(v_min_i16, U16((uint32_t)LESS(S16(x), S16(y))))
BITS2(v_max_i16, U16((uint32_t)MORE(S16(x), S16(y))))

/* Packed 16 bits; the caller has put the chosen halves in place. */
#define BOTH(low, high) (U16(low) | (uint32_t)(high) << 16)
#define HIGH(x) ((x) >> 16)
#define SHIGH(x) (S(x) >> 16)
BITS2(v_pk_add_u16, BOTH(x + y, HIGH(x) + HIGH(y)))
BITS2(v_pk_sub_u16, BOTH(x - y, HIGH(x) - HIGH(y)))
BITS2(v_pk_mul_lo_u16, BOTH(x * y, HIGH(x) * HIGH(y)))
BITS3(v_pk_mad_u16, BOTH(x * y + z, HIGH(x) * HIGH(y) + HIGH(z)))
BITS2(v_pk_lshlrev_b16, BOTH(y << (x & 15), HIGH(y) << (HIGH(x) & 15)))
BITS2(v_pk_lshrrev_b16, BOTH(U16(y) >> (x & 15), HIGH(y) >> (HIGH(x) & 15)))
BITS2(v_pk_ashrrev_i16, BOTH((uint32_t)(S16(y) >> (x & 15)), (uint32_t)(SHIGH(y) >> (HIGH(x) & 15))))
BITS2(v_pk_min_u16, BOTH(LESS(U16(x), U16(y)), LESS(HIGH(x), HIGH(y))))
BITS2(v_pk_max_u16, BOTH(MORE(U16(x), U16(y)), MORE(HIGH(x), HIGH(y))))
BITS2(v_pk_min_i16, BOTH((uint32_t)LESS(S16(x), S16(y)), (uint32_t)LESS(SHIGH(x), SHIGH(y))))
BITS2(v_pk_max_i16, BOTH((uint32_t)MORE(S16(x), S16(y)), (uint32_t)MORE(SHIGH(x), SHIGH(y))))

/* 64 bits. */
#define LONG(name, value)                                            \
    void name(VECTOR_ARGUMENTS)                                      \
    {                                                                \
        UNUSED;                                                      \
        EACH                                                         \
        {                                                            \
            WRITE64(value);                                          \
        }                                                            \
    }
LONG(v_mov_b64, b64(a, i))
LONG(v_lshlrev_b64, b64(b, i) << (a[i] & 63))
LONG(v_lshrrev_b64, b64(b, i) >> (a[i] & 63))
LONG(v_ashrrev_i64, (uint64_t)((int64_t)b64(b, i) >> (a[i] & 63)))
LONG(v_lshl_add_u64, (b64(a, i) << (b[i] & 7)) + b64(c, i))
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

#define NARROW(name, value)                                          \
    void name(VECTOR_ARGUMENTS)                                      \
    {                                                                \
        UNUSED;                                                      \
        EACH                                                         \
        {                                                            \
            WRITE(d, value);                                         \
        }                                                            \
    }
NARROW(v_cvt_f32_f64, b32((float)f64(a, i)))
NARROW(v_cvt_i32_f64, (uint32_t)double_to_i32(f64(a, i)))
NARROW(v_cvt_u32_f64, double_to_u32(f64(a, i)))

/* Carries: b[i] may be c's row; the lane's carry comes in as all ones or 0 in c. */
#define WITH_CARRY(name, wide, out)                                  \
    uint64_t name(VECTOR_ARGUMENTS)                                  \
    {                                                                \
        uint32_t carry[LANES];                                       \
        UNUSED;                                                      \
        EACH                                                         \
        {                                                            \
            const uint64_t x = a[i], y = b[i];                       \
            const uint64_t r = wide;                                 \
            carry[i] = (out) ? ~0u : 0;                              \
            WRITE(d, (uint32_t)r);                                   \
        }                                                            \
        return lanes_of(carry);                                      \
    }
WITH_CARRY(v_add_co_u32, x + y, r >> 32)
WITH_CARRY(v_sub_co_u32, x - y, r >> 63)
WITH_CARRY(v_subrev_co_u32, y - x, r >> 63)
WITH_CARRY(v_addc_co_u32, x + y + (c[i] & 1), r >> 32)
WITH_CARRY(v_subb_co_u32, x - y - (c[i] & 1), r >> 63)
WITH_CARRY(v_subbrev_co_u32, y - x - (c[i] & 1), r >> 63)

uint64_t v_mad_u64_u32(VECTOR_ARGUMENTS)
{
    uint32_t carry[LANES];
    EACH
    {
        const uint64_t product = (uint64_t)a[i] * b[i], sum = product + b64(c, i);
        carry[i] = sum < product ? ~0u : 0;
        WRITE64(sum);
    }
    return lanes_of(carry);
}

uint64_t v_mad_i64_i32(VECTOR_ARGUMENTS)
{
    uint32_t carry[LANES];
    EACH
    {
        const int64_t product = (int64_t)S(a[i]) * S(b[i]), addend = (int64_t)b64(c, i);
        const uint64_t sum = (uint64_t)product + (uint64_t)addend;
        /* The carry of the 65-bit sum of the sign-extended operands. */
        carry[i] = (((uint64_t)product & (uint64_t)addend) | (((uint64_t)product | (uint64_t)addend) & ~sum)) >> 63 ? ~0u : 0;
        WRITE64(sum);
    }
    return lanes_of(carry);
}

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
    return lanes_of(flag);
}

/* The caller puts VCC by lane into the row behind c's. */
void v_div_fmas_f32(VECTOR_ARGUMENTS)
{
    for (int i = 0; i < LANES; i++)
        WRITE(d, b32(f32_div_fmas(f32(a[i]), f32(b[i]), f32(c[i]), c[LANES + i] != 0)));
}

FLOAT3(v_div_fixup_f32, f32_div_fixup(x, y, z))

/* Masks and comparisons. */
void splat(uint32_t *d, uint32_t value)
{
    EACH d[i] = value;
}

void expand(uint32_t *d, uint64_t mask)
{
    const uint32_t low = (uint32_t)mask, high = (uint32_t)(mask >> 32);
    for (int i = 0; i < 32; i++)
        d[i] = (uint32_t)((int32_t)(low << (31 - i)) >> 31);
    for (int i = 0; i < 32; i++)
        d[32 + i] = (uint32_t)((int32_t)(high << (31 - i)) >> 31);
}

void exec_changed(struct wave *w)
{
    expand(w->m, exec_of(w));
}

uint64_t lanes_of(const uint32_t *lanes)
{
    /* Eight lanes at a time: one byte each, then their top bits together. */
    uint64_t mask = 0;
    for (int group = 0; group < LANES; group += 8) {
        uint64_t bytes = 0;
        for (int i = 0; i < 8; i++)
            bytes |= (uint64_t)(lanes[group + i] & 1) << (8 * i);
        mask |= (bytes * 0x0102040810204080ull >> 56) << group;
    }
    return mask;
}

#define COMPARED(name, type, load_a, load_b, condition)              \
    uint64_t name(const uint32_t *a, const uint32_t *b)              \
    {                                                                \
        uint32_t lanes[LANES];                                       \
        EACH                                                         \
        {                                                            \
            const type x = load_a, y = load_b;                       \
            lanes[i] = (condition) ? ~0u : 0;                        \
        }                                                            \
        return lanes_of(lanes);                                      \
    }
#define COMPARED_SIX(suffix, type, x_, y_)                           \
    COMPARED(v_cmp_lt_##suffix, type, x_, y_, x < y)                 \
    COMPARED(v_cmp_eq_##suffix, type, x_, y_, x == y)                \
    COMPARED(v_cmp_le_##suffix, type, x_, y_, x <= y)                \
    COMPARED(v_cmp_gt_##suffix, type, x_, y_, x > y)                 \
    COMPARED(v_cmp_ne_##suffix, type, x_, y_, x != y)                \
    COMPARED(v_cmp_ge_##suffix, type, x_, y_, x >= y)
#define COMPARED_FLOAT(suffix, type, x_, y_)                         \
    COMPARED(v_cmp_lt_##suffix, type, x_, y_, x < y)                 \
    COMPARED(v_cmp_eq_##suffix, type, x_, y_, x == y)                \
    COMPARED(v_cmp_le_##suffix, type, x_, y_, x <= y)                \
    COMPARED(v_cmp_gt_##suffix, type, x_, y_, x > y)                 \
    COMPARED(v_cmp_lg_##suffix, type, x_, y_, x < y || x > y)        \
    COMPARED(v_cmp_ge_##suffix, type, x_, y_, x >= y)                \
    COMPARED(v_cmp_o_##suffix, type, x_, y_, x == x && y == y)       \
    COMPARED(v_cmp_u_##suffix, type, x_, y_, x != x || y != y)       \
    COMPARED(v_cmp_nge_##suffix, type, x_, y_, !(x >= y))            \
    COMPARED(v_cmp_nlg_##suffix, type, x_, y_, !(x < y || x > y))    \
    COMPARED(v_cmp_ngt_##suffix, type, x_, y_, !(x > y))             \
    COMPARED(v_cmp_nle_##suffix, type, x_, y_, !(x <= y))            \
    COMPARED(v_cmp_neq_##suffix, type, x_, y_, x != y)               \
    COMPARED(v_cmp_nlt_##suffix, type, x_, y_, !(x < y))
COMPARED_SIX(i32, int32_t, S(a[i]), S(b[i]))
COMPARED_SIX(u32, uint32_t, a[i], b[i])
COMPARED_SIX(i16, int32_t, S16(a[i]), S16(b[i]))
COMPARED_SIX(u16, uint32_t, U16(a[i]), U16(b[i]))
COMPARED_SIX(i64, int64_t, (int64_t)b64(a, i), (int64_t)b64(b, i))
COMPARED_SIX(u64, uint64_t, b64(a, i), b64(b, i))
COMPARED_FLOAT(f32, float, f32(a[i]), f32(b[i]))
COMPARED_FLOAT(f64, double, f64(a, i), f64(b, i))

uint64_t v_cmp_class_f32(const uint32_t *a, const uint32_t *b)
{
    uint64_t mask = 0;
    for (int i = 0; i < LANES; i++)
        mask |= (uint64_t)(uint32_t)f32_is_class(f32(a[i]), b[i]) << i;
    return mask;
}

/* Modifiers. */
void modify_f32(uint32_t *d, const uint32_t *a, int absolute, int negative)
{
    const uint32_t keep = absolute ? 0x7FFFFFFFu : ~0u, flip = negative ? 0x80000000u : 0;
    EACH d[i] = (a[i] & keep) ^ flip;
}

void modify_f16(uint32_t *d, const uint32_t *a, int absolute, int negative)
{
    const uint32_t keep = absolute ? 0xFFFF7FFFu : ~0u, flip = negative ? 0x8000u : 0;
    EACH d[i] = (a[i] & keep) ^ flip;
}

void modify_f64(uint32_t *d, const uint32_t *a, int absolute, int negative)
{
    move(d, a, NULL, 1);
    modify_f32(d + LANES, a + LANES, absolute, negative);
}

static inline float finished(float x, int omod, int clamp)
{
    if (omod)
        x *= omod == 1 ? 2.0f : omod == 2 ? 4.0f : 0.5f;
    if (clamp)
        x = f32_clamp(x);
    return x;
}

void finish_f32(uint32_t *d, int omod, int clamp)
{
    EACH d[i] = b32(finished(f32(d[i]), omod, clamp));
}

void finish_f64(uint32_t *d, int omod, int clamp)
{
    for (int i = 0; i < LANES; i++) {
        double x = f64(d, i);
        if (omod)
            x *= omod == 1 ? 2.0 : omod == 2 ? 4.0 : 0.5;
        if (clamp)
            x = x > 0 ? (x < 1 ? x : 1.0) : 0.0;
        const uint64_t r = b64_of(x);
        d[i] = (uint32_t)r;
        d[LANES + i] = (uint32_t)(r >> 32);
    }
}

void move(uint32_t *d, const uint32_t *a, const uint32_t *m, int rows)
{
    for (int k = 0; k < rows; k++, d += LANES, a += LANES) {
        if (m)
            EACH d[i] = m[i] ? a[i] : d[i];
        else
            EACH d[i] = a[i];
    }
}

/* Lanes. */
void dpp(uint32_t *d, uint32_t *enable, const uint32_t *a, const uint32_t *from, const uint32_t *lanes,
         const uint32_t *m, int bound_zero)
{
    for (int i = 0; i < LANES; i++) {
        const uint32_t source = from[i] & 63;
        const uint32_t valid = from[i] < LANES ? m[source] : 0;
        d[i] = a[source] & valid;
        enable[i] = m[i] & lanes[i] & (bound_zero ? ~0u : valid);
    }
}

void sdwa_source(uint32_t *d, const uint32_t *a, int select, int extend)
{
    const int bits = select < 4 ? 8 : select < 6 ? 16 : 32;
    const int low = select < 4 ? 8 * select : select < 6 ? 16 * (select - 4) : 0;
    const int up = 32 - bits;
    if (extend)
        EACH d[i] = (uint32_t)(S(a[i] >> low << up) >> up);
    else
        EACH d[i] = a[i] >> low << up >> up;
}

void sdwa_result(uint32_t *d, const uint32_t *a, int select, int unused, const uint32_t *m)
{
    const int bits = select < 4 ? 8 : select < 6 ? 16 : 32;
    const int low = select < 4 ? 8 * select : select < 6 ? 16 * (select - 4) : 0;
    const uint32_t field = bits == 32 ? ~0u : ((1u << bits) - 1) << low;
    for (int i = 0; i < LANES; i++) {
        uint32_t r = a[i] << low & field;
        if (unused == 1 && bits < 32 && a[i] >> (bits - 1) & 1)
            r |= ~(field | (field - 1)) & (low ? ~((1u << low) - 1) : ~0u);
        if (unused == 2)
            r |= d[i] & ~field;
        WRITE(d, r);
    }
}

void upper_half(uint32_t *d, const uint32_t *a)
{
    EACH d[i] = a[i] >> 16;
}

void choose_halves(uint32_t *d, const uint32_t *a, int low, int high)
{
    EACH d[i] = (a[i] >> (16 * low) & 0xFFFFu) | a[i] >> (16 * high) << 16;
}

void merge_half(uint32_t *d, const uint32_t *a, int high, const uint32_t *m)
{
    if (high)
        EACH WRITE(d, (d[i] & 0xFFFFu) | a[i] << 16);
    else
        EACH WRITE(d, (d[i] & 0xFFFF0000u) | (a[i] & 0xFFFFu));
}

static inline uint32_t bitop(uint32_t x, uint32_t y, uint32_t z, int table)
{
    uint32_t r = 0;
    for (int k = 0; k < 8; k++)
        if (table >> k & 1)
            r |= (k & 4 ? x : ~x) & (k & 2 ? y : ~y) & (k & 1 ? z : ~z);
    return r;
}

void v_bitop3_b32(VECTOR_ARGUMENTS, int table)
{
    EACH WRITE(d, bitop(a[i], b[i], c[i], table));
}

void v_bitop3_b16(VECTOR_ARGUMENTS, int table)
{
    EACH WRITE(d, U16(bitop(a[i], b[i], c[i], table)));
}

/* Swap the upper `width` lanes of each 2 * width of d with the lower ones of a; only where EXEC is on. */
static inline void swap_halves(uint32_t *d, uint32_t *a, const uint32_t *m, int width)
{
    row old_d, old_a;
    memcpy(old_d, d, sizeof old_d);
    memcpy(old_a, a, sizeof old_a);
    for (int i = 0; i < LANES; i++) {
        if (i & width) {
            WRITE(d, old_a[i - width]);
        } else {
            WRITE(a, old_d[i + width]);
        }
    }
}

void v_permlane16_swap_b32(uint32_t *d, uint32_t *a, const uint32_t *m)
{
    swap_halves(d, a, m, 16);
}

void v_permlane32_swap_b32(uint32_t *d, uint32_t *a, const uint32_t *m)
{
    swap_halves(d, a, m, 32);
}

void v_swap_b32(uint32_t *d, uint32_t *a, const uint32_t *m)
{
    EACH
    {
        const uint32_t x = d[i], y = a[i];
        WRITE(d, y);
        WRITE(a, x);
    }
}

void v_mbcnt_lo_u32_b32(VECTOR_ARGUMENTS)
{
    (void)c;
    for (int i = 0; i < LANES; i++) {
        const uint32_t below = i < 32 ? (1u << i) - 1 : ~0u;
        WRITE(d, (uint32_t)__builtin_popcount(a[i] & below) + b[i]);
    }
}

void v_mbcnt_hi_u32_b32(VECTOR_ARGUMENTS)
{
    (void)c;
    for (int i = 0; i < LANES; i++) {
        const uint32_t below = i < 32 ? 0 : (1u << (i - 32)) - 1;
        WRITE(d, (uint32_t)__builtin_popcount(a[i] & below) + b[i]);
    }
}

/* operation 0: a + b, 1: a * b, 2: fma, 3: move. low and high: bit k takes operand k's second register. */
void pk_f32(uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *c, const uint32_t *m,
            int operation, int low, int high, int negative_low, int negative_high)
{
    const uint32_t *source[3] = {a, b, c};
    const uint32_t *operand[2][3];
    uint32_t flip[2][3];
    row result[2];
    for (int half = 0; half < 2; half++)
        for (int k = 0; k < 3; k++) {
            operand[half][k] = source[k] ? source[k] + ((half ? high : low) >> k & 1) * LANES : a;
            flip[half][k] = ((half ? negative_high : negative_low) >> k & 1) ? 0x80000000u : 0;
        }
    for (int half = 0; half < 2; half++) {
        const uint32_t *x = operand[half][0], *y = operand[half][1], *z = operand[half][2];
        const uint32_t fx = flip[half][0], fy = flip[half][1], fz = flip[half][2];
        uint32_t *r = result[half];
        if (operation == 0)
            EACH r[i] = b32(f32(x[i] ^ fx) + f32(y[i] ^ fy));
        else if (operation == 1)
            EACH r[i] = b32(f32(x[i] ^ fx) * f32(y[i] ^ fy));
        else if (operation == 2)
            EACH r[i] = b32(__builtin_fmaf(f32(x[i] ^ fx), f32(y[i] ^ fy), f32(z[i] ^ fz)));
        else
            memcpy(r, half ? y : x, sizeof(row));
    }
    move(d, result[0], m, 2);
}
