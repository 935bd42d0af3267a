/* The matrix instructions, out of line, so that generated code does not compile them again. */
#include "mfma.h"

#include "matrix.h"

#define DEFINE(name)                                                                       \
    void v_mfma_##name(row *d, const row *a, const row *b, const row *c, uint32_t splat)   \
    {                                                                                      \
        mfma_##name(d, a, b, c, splat);                                                    \
    }
MFMA_LIST(DEFINE)
#undef DEFINE
#define DEFINE(shape)                                                                      \
    void v_mfma_f32_##shape##_f8f6f4(row *d, const row *a, const row *b, const row *c,     \
                                     uint32_t splat, unsigned cbsz, unsigned blgp)         \
    {                                                                                      \
        mfma_f32_##shape##_f8f6f4(d, a, b, c, splat, cbsz, blgp);                          \
    }                                                                                      \
    void v_mfma_scale_f32_##shape##_f8f6f4(                                                \
        row *d, const row *a, const row *b, const row *c, uint32_t splat, unsigned cbsz,   \
        unsigned blgp, const uint32_t *scale_a, unsigned byte_a, const uint32_t *scale_b,  \
        unsigned byte_b)                                                                   \
    {                                                                                      \
        mfma_scale_f32_##shape##_f8f6f4(d, a, b, c, splat, cbsz, blgp, scale_a, byte_a,    \
                                        scale_b, byte_b);                                  \
    }
MFMA_SHAPES(DEFINE)
