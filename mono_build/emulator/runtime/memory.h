/* Memory instructions, out of line: LDS, global and buffer accesses, all checked.
 *
 * Each answers 0, or 1 after it has filled the wave's fault; then nothing was read or written. Addresses
 * of lanes that EXEC has off are never looked at.
 */
#ifndef MONO_EMULATOR_MEMORY_H
#define MONO_EMULATOR_MEMORY_H

#include "wave.h"

/* Whether `bytes` bytes at `address` lie in one live allocation; if so, `*site` becomes that allocation. */
int find_range(const struct memory_map *map, struct range *site, uint64_t address, uint64_t bytes);

/* Scalar loads: `count` words to `d`. */
int scalar_load(struct wave *w, struct range *site, uint32_t *d, uint64_t address, uint32_t count);
int scalar_buffer_load(struct wave *w, struct range *site, uint32_t *d, const uint32_t *resource,
                       uint32_t offset, uint32_t count);

enum width {
    WIDTH_U8, WIDTH_I8, WIDTH_U16, WIDTH_I16,
    WIDTH_U8_LOW, WIDTH_U8_HIGH, WIDTH_I8_LOW, WIDTH_I8_HIGH, WIDTH_16_LOW, WIDTH_16_HIGH,
    WIDTH_1, WIDTH_2, WIDTH_3, WIDTH_4
};

/* address: one row (an unsigned offset to `base`) or, with `is_wide`, two rows; NULL: `base` alone. */
int global_load(struct wave *w, struct range *site, enum width width, uint32_t *d,
                const uint32_t *address, int is_wide, uint64_t base, int32_t offset);
int global_store(struct wave *w, struct range *site, enum width width, const uint32_t *data,
                 const uint32_t *address, int is_wide, uint64_t base, int32_t offset);

/* resource: four scalar registers; index, offset_row: rows or NULL. */
int buffer_load(struct wave *w, struct range *site, enum width width, uint32_t *d,
                const uint32_t *resource, const uint32_t *index, const uint32_t *offset_row,
                uint32_t soffset, uint32_t offset);
int buffer_store(struct wave *w, struct range *site, enum width width, const uint32_t *data,
                 const uint32_t *resource, const uint32_t *index, const uint32_t *offset_row,
                 uint32_t soffset, uint32_t offset);

/* Scratch: `address` NULL or an offset by lane. */
int scratch_load(struct wave *w, enum width width, uint32_t *d, const uint32_t *address, uint32_t offset);
int scratch_store(struct wave *w, enum width width, const uint32_t *data, const uint32_t *address,
                  uint32_t offset);

enum atomic {
    ATOMIC_SWAP, ATOMIC_CMPSWAP, ATOMIC_ADD, ATOMIC_SUB, ATOMIC_RSUB, ATOMIC_SMIN, ATOMIC_UMIN,
    ATOMIC_SMAX, ATOMIC_UMAX, ATOMIC_AND, ATOMIC_OR, ATOMIC_XOR, ATOMIC_INC, ATOMIC_DEC,
    ATOMIC_ADD_F32, ATOMIC_MIN_F32, ATOMIC_MAX_F32, ATOMIC_ADD_F64, ATOMIC_PK_ADD_F16,
    ATOMIC_PK_ADD_BF16
};

/* d: the old value, or NULL. data: the operand (for CMPSWAP: new value, then what to compare with). */
int global_atomic(struct wave *w, struct range *site, enum atomic operation, int words, uint32_t *d,
                  const uint32_t *data, const uint32_t *address, int is_wide, uint64_t base,
                  int32_t offset);
int buffer_atomic(struct wave *w, struct range *site, enum atomic operation, int words, uint32_t *d,
                  const uint32_t *data, const uint32_t *resource, const uint32_t *index,
                  const uint32_t *offset_row, uint32_t soffset, uint32_t offset);
/* compare: the comparand of CMPSWAP, or NULL. */
int lds_atomic(struct wave *w, enum atomic operation, int words, uint32_t *d, const uint32_t *data,
               const uint32_t *compare, const uint32_t *address, uint32_t offset);

int lds_load(struct wave *w, enum width width, uint32_t *d, const uint32_t *address, uint32_t offset);
int lds_store(struct wave *w, enum width width, const uint32_t *data, const uint32_t *address,
              uint32_t offset);
/* Two accesses of `words` words each, at byte offsets `first` and `second`. */
int lds_load2(struct wave *w, int words, uint32_t *d, const uint32_t *address, uint32_t first,
              uint32_t second);
int lds_store2(struct wave *w, int words, const uint32_t *data0, const uint32_t *data1,
               const uint32_t *address, uint32_t first, uint32_t second);
/* Transposed loads of CDNA4: every 16 lanes exchange elements of `bits` bits. */
int lds_load_transposed(struct wave *w, int bits, uint32_t *d, const uint32_t *address, uint32_t offset);

void ds_bpermute_b32(struct wave *w, uint32_t *d, const uint32_t *address, const uint32_t *data,
                     uint32_t offset);
void ds_permute_b32(struct wave *w, uint32_t *d, const uint32_t *address, const uint32_t *data,
                    uint32_t offset);
void ds_swizzle_b32(struct wave *w, uint32_t *d, const uint32_t *data, uint32_t offset);

#endif
