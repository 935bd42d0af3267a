/* What the C of a translated code object uses. */
#ifndef MONO_EMULATOR_PROGRAM_H
#define MONO_EMULATOR_PROGRAM_H

#include "conversions.h"
#include "halves.h"
#include "memory.h"
#include "mfma.h"
#include "vector.h"
#include "wave.h"

/* Rows of constants and of lane patterns, and the segment at an address (~0 when none begins there). */
extern row K[];
extern row P[];
uint32_t segment_at(uint64_t address);

static inline uint32_t fault_at(struct wave *w, uint32_t instruction, uint32_t at)
{
    w->fault.instruction = instruction;
    return STOP_FAULT | at;
}

static inline uint32_t other_fault(struct wave *w, uint32_t kind, uint32_t instruction, uint32_t at)
{
    w->fault.kind = kind;
    return fault_at(w, instruction, at);
}

static inline uint32_t unknown_fault(struct wave *w, uint32_t instruction, uint32_t at)
{
    return other_fault(w, FAULT_UNKNOWN, instruction, at);
}

static inline uint32_t jump_fault(struct wave *w, uint32_t instruction, uint32_t at)
{
    return other_fault(w, FAULT_TARGET, instruction, at);
}

static inline uint32_t trap_fault(struct wave *w, uint32_t instruction, uint32_t at)
{
    return other_fault(w, FAULT_TRAP, instruction, at);
}

/* A MODE other than the one that all arithmetic here is done in. */
static inline uint32_t mode_fault(struct wave *w, uint32_t instruction, uint32_t at)
{
    return other_fault(w, FAULT_UNKNOWN, instruction, at);
}

static inline uint64_t reverse64(uint64_t x)
{
    x = (x >> 1 & 0x5555555555555555ull) | (x & 0x5555555555555555ull) << 1;
    x = (x >> 2 & 0x3333333333333333ull) | (x & 0x3333333333333333ull) << 2;
    x = (x >> 4 & 0x0F0F0F0F0F0F0F0Full) | (x & 0x0F0F0F0F0F0F0F0Full) << 4;
    return __builtin_bswap64(x);
}

/* `width` bits of x from `offset`, sign-extended; x has `bits` bits. */
static inline int64_t signed_field(int64_t x, uint32_t offset, uint32_t width, uint32_t bits)
{
    if (width == 0)
        return 0;
    if (width + offset >= bits)
        return x >> offset;
    return (int64_t)((uint64_t)x << (64 - width - offset)) >> (64 - width);
}

#endif
