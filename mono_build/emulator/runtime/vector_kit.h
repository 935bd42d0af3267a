/* What the files of vector instructions are written in: loops over lanes, and functions made of one expression. */
#ifndef MONO_EMULATOR_VECTOR_KIT_H
#define MONO_EMULATOR_VECTOR_KIT_H

#include "numeric.h"
#include "vector.h"

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
#define LESS(x, y) ((x) < (y) ? (x) : (y))
#define MORE(x, y) ((x) > (y) ? (x) : (y))
#define MIDDLE(x, y, z) MORE(LESS(x, y), LESS(MORE(x, y), z))

/* The same where the expression takes its operands from a, b and c itself: two rows of result, or one. */
#define LONG(name, value)                                            \
    void name(VECTOR_ARGUMENTS)                                      \
    {                                                                \
        UNUSED;                                                      \
        EACH                                                         \
        {                                                            \
            WRITE64(value);                                          \
        }                                                            \
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

/* Bit i is the lowest bit of lane i: eight lanes at a time, one byte each, then their bits together. */
static inline uint64_t mask_of(const uint32_t *lanes)
{
    uint64_t mask = 0;
    for (int group = 0; group < LANES; group += 8) {
        uint64_t bytes = 0;
        for (int i = 0; i < 8; i++)
            bytes |= (uint64_t)(lanes[group + i] & 1) << (8 * i);
        mask |= (bytes * 0x0102040810204080ull >> 56) << group;
    }
    return mask;
}

#endif
