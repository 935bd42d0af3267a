"""LDS accesses, and lane exchanges that go through the LDS hardware."""

from __future__ import annotations

from mono_build.emulator.instruction import Instruction
from mono_build.emulator.translate.context import Context, NotModelled
from mono_build.emulator.translate.registry import Emitter

_LOADS = {
    "ds_read_b32": "WIDTH_1",
    "ds_read_b64": "WIDTH_2",
    "ds_read_b96": "WIDTH_3",
    "ds_read_b128": "WIDTH_4",
    "ds_read_u8": "WIDTH_U8",
    "ds_read_i8": "WIDTH_I8",
    "ds_read_u16": "WIDTH_U16",
    "ds_read_i16": "WIDTH_I16",
    "ds_read_u8_d16": "WIDTH_U8_LOW",
    "ds_read_u8_d16_hi": "WIDTH_U8_HIGH",
    "ds_read_i8_d16": "WIDTH_I8_LOW",
    "ds_read_i8_d16_hi": "WIDTH_I8_HIGH",
    "ds_read_u16_d16": "WIDTH_16_LOW",
    "ds_read_u16_d16_hi": "WIDTH_16_HIGH",
}
_STORES = {
    "ds_write_b32": "WIDTH_1",
    "ds_write_b64": "WIDTH_2",
    "ds_write_b96": "WIDTH_3",
    "ds_write_b128": "WIDTH_4",
    "ds_write_b8": "WIDTH_U8",
    "ds_write_b8_d16_hi": "WIDTH_U8_HIGH",
    "ds_write_b16": "WIDTH_U16",
    "ds_write_b16_d16_hi": "WIDTH_16_HIGH",
}
# By name without "ds_" and "_rtn"; the type suffix says how many words.
_ATOMICS = {
    "add_u": "ATOMIC_ADD",
    "sub_u": "ATOMIC_SUB",
    "rsub_u": "ATOMIC_RSUB",
    "inc_u": "ATOMIC_INC",
    "dec_u": "ATOMIC_DEC",
    "min_i": "ATOMIC_SMIN",
    "max_i": "ATOMIC_SMAX",
    "min_u": "ATOMIC_UMIN",
    "max_u": "ATOMIC_UMAX",
    "and_b": "ATOMIC_AND",
    "or_b": "ATOMIC_OR",
    "xor_b": "ATOMIC_XOR",
    "wrxchg_b": "ATOMIC_SWAP",
    "cmpst_b": "ATOMIC_CMPSWAP",
}
_FLOAT_ATOMICS = {
    "add_f32": ("ATOMIC_ADD_F32", 1),
    "min_f32": ("ATOMIC_MIN_F32", 1),
    "max_f32": ("ATOMIC_MAX_F32", 1),
    "add_f64": ("ATOMIC_ADD_F64", 2),
    "pk_add_f16": ("ATOMIC_PK_ADD_F16", 1),
    "pk_add_bf16": ("ATOMIC_PK_ADD_BF16", 1),
}


def _row(i: Instruction, ctx: Context, field: str) -> str:
    operand = i.operand(field)
    if operand is None:
        raise NotModelled(f"no operand {field}")
    return ctx.row(operand.code)


def _offset(i: Instruction) -> int:
    if i.modifier("gds"):
        raise NotModelled("GDS")
    return i.modifier("offset1") << 8 | i.modifier("offset0")


def _load(i: Instruction, ctx: Context) -> None:
    target, address = _row(i, ctx, "vdst"), _row(i, ctx, "addr")
    ctx.checked(f"lds_load(w, {_LOADS[i.mnemonic]}, {target}, {address}, {_offset(i)})")


def _store(i: Instruction, ctx: Context) -> None:
    data, address = _row(i, ctx, "data0"), _row(i, ctx, "addr")
    ctx.checked(f"lds_store(w, {_STORES[i.mnemonic]}, {data}, {address}, {_offset(i)})")


def _two(i: Instruction, ctx: Context) -> None:
    """Two accesses; each offset counts elements, or 64 of them."""
    _offset(i)
    words = 2 if i.mnemonic.endswith("b64") else 1
    unit = 4 * words * (64 if "st64" in i.mnemonic else 1)
    first, second = i.modifier("offset0") * unit, i.modifier("offset1") * unit
    address = _row(i, ctx, "addr")
    if i.mnemonic.startswith("ds_read"):
        target = _row(i, ctx, "vdst")
        ctx.checked(f"lds_load2(w, {words}, {target}, {address}, {first}, {second})")
    else:
        data = f"{_row(i, ctx, 'data0')}, {_row(i, ctx, 'data1')}"
        ctx.checked(f"lds_store2(w, {words}, {data}, {address}, {first}, {second})")


def _atomic(i: Instruction, ctx: Context) -> None:
    returns = "_rtn_" in i.mnemonic
    name = i.mnemonic.removeprefix("ds_").replace("_rtn_", "_")
    if name in _FLOAT_ATOMICS:
        operation, words = _FLOAT_ATOMICS[name]
    else:
        operation, words = _ATOMICS[name[:-2]], 2 if name.endswith("64") else 1
    target = _row(i, ctx, "vdst") if returns else "NULL"
    data, compare = _row(i, ctx, "data0"), "NULL"
    if operation == "ATOMIC_CMPSWAP":
        # DS_CMPST compares with its first data operand and writes the second.
        data, compare = _row(i, ctx, "data1"), data
    place = f"{_row(i, ctx, 'addr')}, {_offset(i)}"
    ctx.checked(f"lds_atomic(w, {operation}, {words}, {target}, {data}, {compare}, {place})")


def _exchange(i: Instruction, ctx: Context) -> None:
    rows = f"{_row(i, ctx, 'vdst')}, {_row(i, ctx, 'addr')}, {_row(i, ctx, 'data0')}"
    ctx.line(f"{i.mnemonic}(w, {rows}, {_offset(i)});")


def _swizzle(i: Instruction, ctx: Context) -> None:
    offset = _offset(i)
    if offset >= 0xE000:
        raise NotModelled("FFT swizzle")
    ctx.line(f"ds_swizzle_b32(w, {_row(i, ctx, 'vdst')}, {_row(i, ctx, 'addr')}, {offset});")


def _transposed(i: Instruction, ctx: Context) -> None:
    bits = int(i.mnemonic.rsplit("_b", 1)[1])
    target, address = _row(i, ctx, "vdst"), _row(i, ctx, "addr")
    ctx.checked(f"lds_load_transposed(w, {bits}, {target}, {address}, {_offset(i)})")


def _nothing(i: Instruction, ctx: Context) -> None:
    """DS_NOP."""


def _atomic_names() -> list[str]:
    names = [f"{n}{w}" for n in _ATOMICS for w in (32, 64)] + list(_FLOAT_ATOMICS)
    found = []
    for name in names:
        stem, kind = name.rsplit("_", 1)
        found.append(f"ds_{stem}_rtn_{kind}")
        if not name.startswith("wrxchg"):
            found.append(f"ds_{name}")
    return found


EMITTERS: dict[str, Emitter] = {
    **dict.fromkeys(_LOADS, _load),
    **dict.fromkeys(_STORES, _store),
    **{f"ds_{a}2{s}_b{w}": _two for a in ("read", "write") for s in ("", "st64") for w in (32, 64)},
    **dict.fromkeys(_atomic_names(), _atomic),
    **dict.fromkeys(("ds_bpermute_b32", "ds_permute_b32"), _exchange),
    "ds_swizzle_b32": _swizzle,
    **{f"ds_read_b64_tr_b{n}": _transposed for n in (4, 8, 16)},
    "ds_nop": _nothing,
}
