/* Vector instructions on bits and integers, of whole rows. */
#include "vector_kit.h"

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

/* 64 bits. */
LONG(v_mov_b64, b64(a, i))
LONG(v_lshlrev_b64, b64(b, i) << (a[i] & 63))
LONG(v_lshrrev_b64, b64(b, i) >> (a[i] & 63))
LONG(v_ashrrev_i64, (uint64_t)((int64_t)b64(b, i) >> (a[i] & 63)))
LONG(v_lshl_add_u64, (b64(a, i) << (b[i] & 7)) + b64(c, i))

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
        return mask_of(carry);                                       \
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
    return mask_of(carry);
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
    return mask_of(carry);
}
