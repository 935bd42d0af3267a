/* f16 arithmetic on whole rows, out of line. `overflow` is FP16_OVFL of the wave's MODE.
 *
 * The single ones read the low halves and give a zero-extended half; the packed one does both halves. */
#ifndef MONO_EMULATOR_HALVES_H
#define MONO_EMULATOR_HALVES_H

#include "wave.h"

#define HALVES(name)                                                                                              \
    void name(uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *c, const uint32_t *m, int overflow);
HALVES(v_add_f16) HALVES(v_sub_f16) HALVES(v_subrev_f16) HALVES(v_mul_f16) HALVES(v_fma_f16)
HALVES(v_min_f16) HALVES(v_max_f16)
HALVES(v_pk_add_f16) HALVES(v_pk_mul_f16) HALVES(v_pk_fma_f16) HALVES(v_pk_min_f16) HALVES(v_pk_max_f16)
#undef HALVES
/* Operand of a packed instruction: its halves `low` and `high`, each negated where its flag says so. */
void pick_halves(uint32_t *d, const uint32_t *a, int low, int high, int negative_low, int negative_high);

#endif
