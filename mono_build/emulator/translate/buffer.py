"""Buffer accesses through a resource descriptor (MUBUF)."""

from __future__ import annotations

from mono_build.emulator.instruction import Instruction
from mono_build.emulator.translate.context import Context, NotModelled
from mono_build.emulator.translate.memory import ATOMICS, LOADS, STORES, atomic
from mono_build.emulator.translate.registry import Emitter


def _place(i: Instruction, ctx: Context) -> str:
    """C for the arguments resource, index, offset row, soffset, offset of the runtime's functions."""
    resource, vaddr, soffset = (i.operand(n) for n in ("srsrc", "vaddr", "soffset"))
    if resource is None or vaddr is None or soffset is None:
        raise NotModelled("an operand is missing")
    if i.modifier("lds"):
        raise NotModelled("loads into LDS")
    index = offset = "NULL"
    if i.modifier("idxen"):
        index = ctx.row(vaddr.code)
    if i.modifier("offen"):
        offset = ctx.row(vaddr.code + i.modifier("idxen"))
    return (
        f"&{ctx.register(resource.code)}, {index}, {offset}, {ctx.scalar(soffset, i)},"
        f" {i.modifier('offset')}"
    )


def _data(i: Instruction, ctx: Context) -> str:
    operand = i.operand("vdata")
    if operand is None:
        raise NotModelled("no operand vdata")
    return ctx.row(operand.code)


def _access(i: Instruction, ctx: Context) -> None:
    _, action, what = i.mnemonic.split("_", 2)
    width = (LOADS if action == "load" else STORES)[what]
    data, place = _data(i, ctx), _place(i, ctx)
    ctx.checked(f"buffer_{action}(w, {ctx.site()}, {width}, {data}, {place})")


def _atomic(i: Instruction, ctx: Context) -> None:
    name, words = atomic(i.mnemonic.split("_", 2)[2])
    data, place = _data(i, ctx), _place(i, ctx)
    old = data if i.modifier("sc0") else "NULL"
    ctx.checked(f"buffer_atomic(w, {ctx.site()}, {name}, {words}, {old}, {data}, {place})")


EMITTERS: dict[str, Emitter] = {
    **{f"buffer_load_{n}": _access for n in LOADS},
    **{f"buffer_store_{n}": _access for n in STORES},
    **{f"buffer_atomic_{n}": _atomic for n in ATOMICS},
    **{f"buffer_atomic_{n}_x2": _atomic for n in ATOMICS if "_" not in n},
}
