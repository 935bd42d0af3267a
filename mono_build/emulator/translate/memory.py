"""Scalar loads, and global and scratch accesses by lane."""

from __future__ import annotations

from mono_build.emulator.instruction import Instruction, Operand
from mono_build.emulator.translate.context import Context, NotModelled
from mono_build.emulator.translate.registry import Emitter, names

# What the runtime calls a width, by what follows "load_" or "store_" in a mnemonic.
LOADS = {
    "ubyte": "WIDTH_U8",
    "sbyte": "WIDTH_I8",
    "ushort": "WIDTH_U16",
    "sshort": "WIDTH_I16",
    "ubyte_d16": "WIDTH_U8_LOW",
    "ubyte_d16_hi": "WIDTH_U8_HIGH",
    "sbyte_d16": "WIDTH_I8_LOW",
    "sbyte_d16_hi": "WIDTH_I8_HIGH",
    "short_d16": "WIDTH_16_LOW",
    "short_d16_hi": "WIDTH_16_HIGH",
    "dword": "WIDTH_1",
    "dwordx2": "WIDTH_2",
    "dwordx3": "WIDTH_3",
    "dwordx4": "WIDTH_4",
}
STORES = {
    "byte": "WIDTH_U8",
    "byte_d16_hi": "WIDTH_U8_HIGH",
    "short": "WIDTH_U16",
    "short_d16_hi": "WIDTH_16_HIGH",
    "dword": "WIDTH_1",
    "dwordx2": "WIDTH_2",
    "dwordx3": "WIDTH_3",
    "dwordx4": "WIDTH_4",
}
ATOMICS = {
    "swap": "ATOMIC_SWAP",
    "cmpswap": "ATOMIC_CMPSWAP",
    "add": "ATOMIC_ADD",
    "sub": "ATOMIC_SUB",
    "smin": "ATOMIC_SMIN",
    "umin": "ATOMIC_UMIN",
    "smax": "ATOMIC_SMAX",
    "umax": "ATOMIC_UMAX",
    "and": "ATOMIC_AND",
    "or": "ATOMIC_OR",
    "xor": "ATOMIC_XOR",
    "inc": "ATOMIC_INC",
    "dec": "ATOMIC_DEC",
    "add_f32": "ATOMIC_ADD_F32",
    "pk_add_f16": "ATOMIC_PK_ADD_F16",
    "pk_add_bf16": "ATOMIC_PK_ADD_BF16",
}
_OFF = 0x7F  # SADDR that stands for "no scalar base"


def signed(value: int, bits: int) -> int:
    """``value`` of ``bits`` bits as two's complement."""
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def _needed(i: Instruction, field: str) -> Operand:
    operand = i.operand(field)
    if operand is None:
        raise NotModelled(f"no operand {field}")
    return operand


def _scalar_offset(i: Instruction, ctx: Context) -> str:
    parts = []
    if i.modifier("imm"):
        parts.append(str(signed(i.modifier("offset"), 21)))
    if i.modifier("soffset_en"):
        parts.append(ctx.register(_needed(i, "soffset").code))
    if not parts:
        raise NotModelled("offset in a register named by the offset field")
    return " + ".join(parts)


def _scalar_load(i: Instruction, ctx: Context) -> None:
    target, base = _needed(i, "sdata"), _needed(i, "sbase")
    words = target.bits // 32
    offset = _scalar_offset(i, ctx)
    place = f"&{ctx.register(target.code)}"
    if "buffer" in i.mnemonic:
        resource = f"&{ctx.register(base.code)}"
        call = f"scalar_buffer_load(w, {ctx.site()}, {place}, {resource}, {offset}, {words})"
    else:
        address = f"(pair(&{ctx.register(base.code)}) + {offset}) & ~3ull"
        call = f"scalar_load(w, {ctx.site()}, {place}, {address}, {words})"
    ctx.checked(call)


def _scalar_clock(i: Instruction, ctx: Context) -> None:
    ctx.set_scalar(Operand("sdata", i.operands[0].code, 64), "*w->clock")


def _nothing(i: Instruction, ctx: Context) -> None:
    """Cache control: memory here is always coherent."""


def _address(i: Instruction, ctx: Context) -> str:
    """C for the arguments address, is_wide, base, offset of the runtime's functions."""
    offset = signed(i.modifier("offset"), 13)
    address, base = _needed(i, "addr"), _needed(i, "saddr")
    if base.code == _OFF:
        return f"{ctx.row(address.code)}, 1, 0, {offset}"
    return f"{ctx.row(address.code)}, 0, pair(&{ctx.register(base.code)}), {offset}"


def _global(i: Instruction, ctx: Context) -> None:
    _, action, what = i.mnemonic.split("_", 2)
    if action == "load":
        target = f"{LOADS[what]}, {ctx.row(_needed(i, 'vdst').code)}"
        ctx.checked(f"global_load(w, {ctx.site()}, {target}, {_address(i, ctx)})")
    else:
        data = f"{STORES[what]}, {ctx.row(_needed(i, 'data').code)}"
        ctx.checked(f"global_store(w, {ctx.site()}, {data}, {_address(i, ctx)})")


def atomic(what: str) -> tuple[str, int]:
    """The runtime's name and the number of words of an atomic, by what follows ``atomic_``."""
    if what.endswith("_f64"):
        return f"ATOMIC_{what.upper()}", 2
    name = what.removesuffix("_x2")
    return ATOMICS[name], 2 if name != what else 1


def _global_atomic(i: Instruction, ctx: Context) -> None:
    name, words = atomic(i.mnemonic.split("_", 2)[2])
    old = ctx.row(_needed(i, "vdst").code) if i.modifier("sc0") else "NULL"
    data = ctx.row(_needed(i, "data").code)
    call = f"global_atomic(w, {ctx.site()}, {name}, {words}, {old}, {data}, {_address(i, ctx)})"
    ctx.checked(call)


def _scratch(i: Instruction, ctx: Context) -> None:
    _, action, what = i.mnemonic.split("_", 2)
    base = _needed(i, "saddr")
    offset = f"(uint32_t){signed(i.modifier('offset'), 13)}"
    if base.code != _OFF:
        offset += f" + {ctx.register(base.code)}"
    address = ctx.row(_needed(i, "addr").code) if i.modifier("sve") else "NULL"
    if action == "load":
        target = f"{LOADS[what]}, {ctx.row(_needed(i, 'vdst').code)}"
        ctx.checked(f"scratch_load(w, {target}, {address}, {offset})")
    else:
        data = f"{STORES[what]}, {ctx.row(_needed(i, 'data').code)}"
        ctx.checked(f"scratch_store(w, {data}, {address}, {offset})")


_CACHE = names(
    "buffer_wbl2 buffer_inv s_dcache_inv s_dcache_wb s_dcache_inv_vol s_dcache_wb_vol"
    " buffer_wbinvl1 buffer_wbinvl1_vol"
)
_ATOMIC_NAMES = (*ATOMICS, *(f"{n}_x2" for n in ATOMICS if "_" not in n), "add_f64")

EMITTERS: dict[str, Emitter] = {
    **{f"s_load_dword{n}": _scalar_load for n in ("", "x2", "x4", "x8", "x16")},
    **{f"s_buffer_load_dword{n}": _scalar_load for n in ("", "x2", "x4", "x8", "x16")},
    **dict.fromkeys(("s_memtime", "s_memrealtime"), _scalar_clock),
    **dict.fromkeys(_CACHE, _nothing),
    **{f"global_load_{n}": _global for n in LOADS},
    **{f"global_store_{n}": _global for n in STORES},
    **{f"global_atomic_{n}": _global_atomic for n in _ATOMIC_NAMES},
    **{f"scratch_load_{n}": _scratch for n in LOADS},
    **{f"scratch_store_{n}": _scratch for n in STORES},
}
