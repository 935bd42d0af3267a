/* Vector instructions, out of line: each is compiled once and called with the rows of its operands.
 *
 * d: result rows; a, b, c: operand rows (a pair is two rows that follow each other); m: lanes to write.
 * A result row may be an operand row. Functions of carries and comparisons answer a mask of all lanes;
 * the caller clears what EXEC has off.
 */
#ifndef MONO_EMULATOR_VECTOR_H
#define MONO_EMULATOR_VECTOR_H

#include "wave.h"

#define VECTOR_ARGUMENTS \
    uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *c, const uint32_t *m
#define VECTOR(name) void name(VECTOR_ARGUMENTS);
#define CARRY(name) uint64_t name(VECTOR_ARGUMENTS);
#define COMPARE(name) uint64_t name(const uint32_t *a, const uint32_t *b);
#include "vector_list.h"
#undef VECTOR
#undef CARRY
#undef COMPARE

/* The lane mask of w's EXEC, to be called after each change of EXEC. */
void exec_changed(struct wave *w);
/* Bit i of `mask` as all ones in lane i. */
void expand(uint32_t *d, uint64_t mask);
uint64_t lanes_of(const uint32_t *lanes);
void splat(uint32_t *d, uint32_t value);

/* Operand modifiers into a temporary row; abs is applied before neg. */
void modify_f32(uint32_t *d, const uint32_t *a, int absolute, int negative);
void modify_f16(uint32_t *d, const uint32_t *a, int absolute, int negative);
void modify_f64(uint32_t *d, const uint32_t *a, int absolute, int negative);
/* omod (0: none, 1: *2, 2: *4, 3: /2), then clamp to [0, 1]; NaN clamps to 0. */
void finish_f32(uint32_t *d, int omod, int clamp);
void finish_f64(uint32_t *d, int omod, int clamp);
/* d = a where m is set, for `rows` rows. */
void move(uint32_t *d, const uint32_t *a, const uint32_t *m, int rows);

/* DPP: d = lane `from[i]` of a, or 0 where from[i] is not below 64 or that lane is off. `enable` gets the
 * lanes to write: those of m and `lanes` that have a source, and with `bound_zero` also the others. */
void dpp(uint32_t *d, uint32_t *enable, const uint32_t *a, const uint32_t *from, const uint32_t *lanes,
         const uint32_t *m, int bound_zero);
/* SDWA: part `select` (0-3: byte, 4-5: half, 6: all) of a, zero- or sign-extended. */
void sdwa_source(uint32_t *d, const uint32_t *a, int select, int extend);
/* SDWA: put a's low part at `select` of d; `unused` 0: zeros around it, 1: its sign above, 2: keep d. */
void sdwa_result(uint32_t *d, const uint32_t *a, int select, int unused, const uint32_t *m);
/* VOP3 op_sel: the upper half of a, moved down. */
void upper_half(uint32_t *d, const uint32_t *a);
/* d's halves are the chosen (0: low, 1: high) halves of a. */
void choose_halves(uint32_t *d, const uint32_t *a, int low, int high);
/* Write the low half of a into the upper (`high`) or lower half of d, keeping d's other half. */
void merge_half(uint32_t *d, const uint32_t *a, int high, const uint32_t *m);

void v_bitop3_b32(VECTOR_ARGUMENTS, int table);
void v_bitop3_b16(VECTOR_ARGUMENTS, int table);
void v_permlane16_swap_b32(uint32_t *d, uint32_t *a, const uint32_t *m);
void v_permlane32_swap_b32(uint32_t *d, uint32_t *a, const uint32_t *m);
void v_swap_b32(uint32_t *d, uint32_t *a, const uint32_t *m);
/* Lane l of the 64 counts the bits of `mask` below it, plus b. */
void v_mbcnt_lo_u32_b32(VECTOR_ARGUMENTS);
void v_mbcnt_hi_u32_b32(VECTOR_ARGUMENTS);
/* d.f32 pair: which = 1 takes the second register of an operand for that half. */
void pk_f32(uint32_t *d, const uint32_t *a, const uint32_t *b, const uint32_t *c, const uint32_t *m,
            int operation, int low, int high, int negative_low, int negative_high);

#endif
