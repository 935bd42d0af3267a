"""Scalar arithmetic, comparisons, branches and what a wave does to itself."""

from __future__ import annotations

from dataclasses import dataclass

from mono_build.emulator.instruction import EXEC, Instruction, Operand
from mono_build.emulator.translate.context import Context, NotModelled
from mono_build.emulator.translate.registry import Emitter, names

_C_TYPES = {
    "u32": "uint32_t",
    "b32": "uint32_t",
    "i32": "int32_t",
    "u64": "uint64_t",
    "b64": "uint64_t",
    "i64": "int64_t",
}


@dataclass(frozen=True, slots=True)
class _Operation:
    """``value`` over a and b of the C types of ``type``; ``scc`` over these and the result r."""

    type: str
    value: str
    scc: str = ""
    before: str = ""


_CARRY = "const uint64_t t = (uint64_t)a + b"
_BORROW = "const uint64_t t = (uint64_t)a - b"
_BITS = "r != 0"
_SOP2 = {
    "s_add_u32": _Operation("u32", "(uint32_t)t", "(uint32_t)(t >> 32)", _CARRY),
    "s_sub_u32": _Operation("u32", "(uint32_t)t", "(uint32_t)(t >> 63)", _BORROW),
    "s_addc_u32": _Operation("u32", "(uint32_t)t", "(uint32_t)(t >> 32)", _CARRY + " + w->scc"),
    "s_subb_u32": _Operation("u32", "(uint32_t)t", "(uint32_t)(t >> 63)", _BORROW + " - w->scc"),
    "s_add_i32": _Operation(
        "i32", "(int32_t)t", "t != (int32_t)t", "const int64_t t = (int64_t)a + b"
    ),
    "s_sub_i32": _Operation(
        "i32", "(int32_t)t", "t != (int32_t)t", "const int64_t t = (int64_t)a - b"
    ),
    "s_min_i32": _Operation("i32", "a < b ? a : b", "a < b"),
    "s_min_u32": _Operation("u32", "a < b ? a : b", "a < b"),
    "s_max_i32": _Operation("i32", "a >= b ? a : b", "a >= b"),
    "s_max_u32": _Operation("u32", "a >= b ? a : b", "a >= b"),
    "s_cselect_b32": _Operation("b32", "w->scc ? a : b"),
    "s_cselect_b64": _Operation("b64", "w->scc ? a : b"),
    "s_bfm_b32": _Operation("b32", "((1u << (a & 31)) - 1) << (b & 31)"),
    "s_bfm_b64": _Operation("b64", "((1ull << (a & 63)) - 1) << (b & 63)"),
    "s_mul_i32": _Operation("u32", "a * b"),
    "s_mul_hi_u32": _Operation("u32", "(uint32_t)((uint64_t)a * b >> 32)"),
    "s_mul_hi_i32": _Operation("i32", "(int32_t)((int64_t)a * b >> 32)"),
    "s_absdiff_i32": _Operation(
        "i32",
        "a > b ? (int32_t)((uint32_t)a - (uint32_t)b) : (int32_t)((uint32_t)b - (uint32_t)a)",
        _BITS,
    ),
    "s_pack_ll_b32_b16": _Operation("b32", "(a & 0xFFFFu) | b << 16"),
    "s_pack_lh_b32_b16": _Operation("b32", "(a & 0xFFFFu) | (b & 0xFFFF0000u)"),
    "s_pack_hh_b32_b16": _Operation("b32", "a >> 16 | (b & 0xFFFF0000u)"),
    "s_bfe_u32": _Operation(
        "u32",
        "n == 0 ? 0 : a >> (b & 31) & (n > 31 ? ~0u : (1u << n) - 1)",
        _BITS,
        "const uint32_t n = b >> 16 & 127",
    ),
    "s_bfe_u64": _Operation(
        "u64",
        "n == 0 ? 0 : a >> (b & 63) & (n > 63 ? ~0ull : (1ull << n) - 1)",
        _BITS,
        "const uint32_t n = (uint32_t)b >> 16 & 127",
    ),
    "s_bfe_i32": _Operation("i32", "(int32_t)signed_field(a, b & 31, b >> 16 & 127, 32)", _BITS),
    "s_bfe_i64": _Operation("i64", "signed_field(a, b & 63, b >> 16 & 127, 64)", _BITS),
}
for _wide, _mask, _one in (("32", "31", "1u"), ("64", "63", "1ull")):
    _SOP2 |= {
        f"s_and_b{_wide}": _Operation(f"b{_wide}", "a & b", _BITS),
        f"s_or_b{_wide}": _Operation(f"b{_wide}", "a | b", _BITS),
        f"s_xor_b{_wide}": _Operation(f"b{_wide}", "a ^ b", _BITS),
        f"s_andn2_b{_wide}": _Operation(f"b{_wide}", "a & ~b", _BITS),
        f"s_orn2_b{_wide}": _Operation(f"b{_wide}", "a | ~b", _BITS),
        f"s_nand_b{_wide}": _Operation(f"b{_wide}", "~(a & b)", _BITS),
        f"s_nor_b{_wide}": _Operation(f"b{_wide}", "~(a | b)", _BITS),
        f"s_xnor_b{_wide}": _Operation(f"b{_wide}", "~(a ^ b)", _BITS),
        f"s_lshl_b{_wide}": _Operation(f"b{_wide}", f"a << (b & {_mask})", _BITS),
        f"s_lshr_b{_wide}": _Operation(f"b{_wide}", f"a >> (b & {_mask})", _BITS),
        f"s_ashr_i{_wide}": _Operation(f"i{_wide}", f"a >> (b & {_mask})", _BITS),
    }
for _shift in (1, 2, 3, 4):
    _SOP2[f"s_lshl{_shift}_add_u32"] = _Operation(
        "u32", "(uint32_t)t", "t >> 32 != 0", f"const uint64_t t = ((uint64_t)a << {_shift}) + b"
    )

_SOP1 = {
    "s_mov_b32": _Operation("b32", "a"),
    "s_mov_b64": _Operation("b64", "a"),
    "s_not_b32": _Operation("b32", "~a", _BITS),
    "s_not_b64": _Operation("b64", "~a", _BITS),
    "s_brev_b32": _Operation("b32", "(uint32_t)(reverse64(a) >> 32)"),
    "s_brev_b64": _Operation("b64", "reverse64(a)"),
    "s_bcnt0_i32_b32": _Operation("b32", "32 - (uint32_t)__builtin_popcount(a)", _BITS),
    "s_bcnt0_i32_b64": _Operation("b64", "64 - (uint32_t)__builtin_popcountll(a)", _BITS),
    "s_bcnt1_i32_b32": _Operation("b32", "(uint32_t)__builtin_popcount(a)", _BITS),
    "s_bcnt1_i32_b64": _Operation("b64", "(uint32_t)__builtin_popcountll(a)", _BITS),
    "s_ff1_i32_b32": _Operation("b32", "a ? (uint32_t)__builtin_ctz(a) : ~0u"),
    "s_ff1_i32_b64": _Operation("b64", "a ? (uint32_t)__builtin_ctzll(a) : ~0u"),
    "s_ff0_i32_b32": _Operation("b32", "~a ? (uint32_t)__builtin_ctz(~a) : ~0u"),
    "s_ff0_i32_b64": _Operation("b64", "~a ? (uint32_t)__builtin_ctzll(~a) : ~0u"),
    "s_flbit_i32_b32": _Operation("b32", "a ? (uint32_t)__builtin_clz(a) : ~0u"),
    "s_flbit_i32_b64": _Operation("b64", "a ? (uint32_t)__builtin_clzll(a) : ~0u"),
    "s_flbit_i32": _Operation(
        "b32", "(a ^ -(a >> 31)) ? (uint32_t)__builtin_clz(a ^ -(a >> 31)) : ~0u"
    ),
    "s_sext_i32_i8": _Operation("b32", "(uint32_t)(int32_t)(int8_t)a"),
    "s_sext_i32_i16": _Operation("b32", "(uint32_t)(int32_t)(int16_t)a"),
    "s_abs_i32": _Operation("b32", "a >> 31 ? -a : a", _BITS),
}

_COMPARISONS = {"eq": "==", "lg": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def _operate(ctx: Context, operation: _Operation, sources: list[str], target: Operand) -> None:
    kind = _C_TYPES[operation.type]
    result = "uint64_t" if target.bits >= 64 else "uint32_t"
    ctx.line("{")
    for name, value in zip("ab", sources, strict=False):
        # A shift count, or a field's place, is taken as it is: only values have the operation's type.
        ctx.line(f"const {kind} {name} = ({kind})({value});")
    if operation.before:
        ctx.line(operation.before + ";")
    # The result is computed before anything is written: sources may be targets.
    ctx.line(f"const {result} r = ({result})({operation.value});")
    if operation.scc:
        ctx.line(f"w->scc = (uint32_t)({operation.scc});")
    ctx.set_scalar(target, "r")
    ctx.line("}")


def _two_sources(i: Instruction, ctx: Context) -> None:
    target, first, second = i.operands
    operation = _SOP2[i.mnemonic]
    kind = operation.type
    _operate(ctx, operation, [ctx.scalar(first, i, kind), ctx.scalar(second, i, kind)], target)


def _one_source(i: Instruction, ctx: Context) -> None:
    target, source = i.operands
    operation = _SOP1[i.mnemonic]
    _operate(ctx, operation, [ctx.scalar(source, i, operation.type)], target)


def _compare(i: Instruction, ctx: Context) -> None:
    _, relation, kind = i.mnemonic.rsplit("_", 2)
    c_type = _C_TYPES[kind]
    first, second = (f"({c_type}){ctx.scalar(o, i, kind)}" for o in i.operands)
    ctx.line(f"w->scc = {first} {_COMPARISONS[relation]} {second};")


def _bit_compare(i: Instruction, ctx: Context) -> None:
    wide = 63 if i.mnemonic.endswith("64") else 31
    wanted = i.mnemonic[len("s_bitcmp")]
    first, second = (ctx.scalar(o, i) for o in i.operands)
    ctx.line(f"w->scc = ({first} >> ({second} & {wide}) & 1) == {wanted};")


def _immediate(i: Instruction) -> int:
    value = i.modifier("simm16")
    return value - 0x10000 if value & 0x8000 else value


def _constant_source(i: Instruction, ctx: Context) -> None:
    (target,) = i.operands
    value = _immediate(i)
    name = i.mnemonic
    if name == "s_movk_i32":
        ctx.set_scalar(target, f"(uint32_t){value}")
    elif name == "s_cmovk_i32":
        ctx.line(f"if (w->scc) {ctx.register(target.code)} = (uint32_t){value};")
    elif name == "s_mulk_i32":
        ctx.set_scalar(target, f"{ctx.register(target.code)} * (uint32_t){value}")
    else:
        source = ctx.register(target.code)
        _operate(ctx, _SOP2["s_add_i32"], [source, str(value)], target)


def _constant_compare(i: Instruction, ctx: Context) -> None:
    (source,) = i.operands
    _, relation, kind = i.mnemonic.rsplit("_", 2)
    value = _immediate(i) if kind == "i32" else i.modifier("simm16")
    first = f"({_C_TYPES[kind]}){ctx.register(source.code)}"
    ctx.line(f"w->scc = {first} {_COMPARISONS[relation]} ({_C_TYPES[kind]}){value};")


def _conditional_move(i: Instruction, ctx: Context) -> None:
    target, source = i.operands
    ctx.line("if (w->scc) {")
    ctx.set_scalar(target, ctx.scalar(source, i))
    ctx.line("}")


def _bit_set(i: Instruction, ctx: Context) -> None:
    target, source = i.operands
    value = 1 if "bitset1" in i.mnemonic else 0
    wide = 64 if i.mnemonic.endswith("64") else 32
    place = Operand("sdst", target.code, wide)
    old = ctx.scalar(place, i)
    one = f"1ull << ({ctx.scalar(source, i)} & {wide - 1})"
    ctx.set_scalar(place, f"{old} | {one}" if value else f"{old} & ~({one})")


_SAVE_EXEC = {
    "s_and": "a & e",
    "s_or": "a | e",
    "s_xor": "a ^ e",
    "s_andn2": "a & ~e",
    "s_orn2": "a | ~e",
    "s_nand": "~(a & e)",
    "s_nor": "~(a | e)",
    "s_xnor": "~(a ^ e)",
    "s_andn1": "~a & e",
    "s_orn1": "~a | e",
}


def _save_exec(i: Instruction, ctx: Context) -> None:
    target, source = i.operands
    ctx.line(f"{{ const uint64_t a = {ctx.scalar(source, i)}, e = exec_of(w);")
    ctx.set_scalar(Operand("sdst", target.code, 64), "e")
    ctx.line(f"const uint64_t r = {_SAVE_EXEC[i.mnemonic.removesuffix('_saveexec_b64')]};")
    ctx.set_scalar(Operand("sdst", EXEC, 64), "r")
    ctx.line("w->scc = r != 0; }")


_CONDITIONS = {
    "s_cbranch_scc0": "!w->scc",
    "s_cbranch_scc1": "w->scc",
    "s_cbranch_vccz": "pair(s + VCC) == 0",
    "s_cbranch_vccnz": "pair(s + VCC) != 0",
    "s_cbranch_execz": "exec_of(w) == 0",
    "s_cbranch_execnz": "exec_of(w) != 0",
}


def _branch(i: Instruction, ctx: Context) -> None:
    condition = _CONDITIONS.get(i.mnemonic, "1")
    if ctx.target is None:
        ctx.line(f"if ({condition}) return jump_fault(w, {ctx.number}, {ctx.segment});")
    else:
        ctx.line(f"if ({condition}) return {ctx.target};")


def _get_pc(i: Instruction, ctx: Context) -> None:
    (target,) = i.operands[:1]
    ctx.set_scalar(Operand("sdst", target.code, 64), f"w->launch->code_base + {i.address + 4}")


def _set_pc(i: Instruction, ctx: Context) -> None:
    source = i.operands[-1]
    ctx.line(f"{{ const uint64_t to = {ctx.scalar(source, i)} - w->launch->code_base;")
    if i.mnemonic == "s_swappc_b64":
        back = Operand("sdst", i.operands[0].code, 64)
        ctx.set_scalar(back, f"w->launch->code_base + {i.address + 4}")
    ctx.line("const uint32_t found = segment_at(to);")
    ctx.line(f"if (found == ~0u) return jump_fault(w, {ctx.number}, {ctx.segment});")
    ctx.line("return found; }")


def _set_mode(i: Instruction, ctx: Context) -> None:
    register = i.modifier("simm16")
    if register & 63 != 1:  # only MODE
        raise NotModelled(f"hardware register {register & 63}")
    low, wide = register >> 6 & 31, (register >> 11 & 31) + 1
    mask = ((1 << wide) - 1) << low
    value = f"0x{i.literal:x}u" if i.literal is not None else ctx.register(i.operands[0].code)
    # What the runtime computes with: rounding to nearest even, denormals kept.
    if low < 8:
        ctx.line(f"if ((({value} << {low}) & 0x{mask & 0xFF:x}u) != (0xF0u & 0x{mask:x}u))")
        ctx.line(f"    return mode_fault(w, {ctx.number}, {ctx.segment});")
    ctx.line(f"w->mode = (w->mode & ~0x{mask:x}u) | (({value} << {low}) & 0x{mask:x}u);")


def _get_register(i: Instruction, ctx: Context) -> None:
    register = i.modifier("simm16")
    if register & 63 != 1:
        raise NotModelled(f"hardware register {register & 63}")
    low, wide = register >> 6 & 31, (register >> 11 & 31) + 1
    mask = (1 << wide) - 1
    ctx.set_scalar(i.operands[0], f"w->mode >> {low} & 0x{mask:x}u")


def _end(i: Instruction, ctx: Context) -> None:
    ctx.line(f"return STOP_END | {ctx.segment};")


def _sleep(i: Instruction, ctx: Context) -> None:
    ctx.line(f"return STOP_YIELD | {ctx.next_segment};")


def _barrier(i: Instruction, ctx: Context) -> None:
    ctx.line(f"return STOP_BARRIER | {ctx.next_segment};")


def _trap(i: Instruction, ctx: Context) -> None:
    ctx.line(f"return trap_fault(w, {ctx.number}, {ctx.segment});")


def _nothing(i: Instruction, ctx: Context) -> None:
    """Waits, hints and cache control: memory here is always coherent and complete."""


_NOTHING = names(
    "s_nop s_waitcnt s_setprio s_icache_inv s_inst_prefetch s_sethalt s_clause s_ttracedata"
    " s_incperflevel s_decperflevel s_set_gpr_idx_off s_wakeup s_waitcnt_vscnt s_waitcnt_depctr"
)
_NO_HALT = [n for n in _NOTHING if n not in ("s_sethalt", "s_set_gpr_idx_off")]

EMITTERS: dict[str, Emitter] = {
    **dict.fromkeys(_SOP2, _two_sources),
    **dict.fromkeys(_SOP1, _one_source),
    **{
        f"s_cmp_{r}_{k}": _compare
        for r in _COMPARISONS
        for k in (("i32", "u32", "u64") if r in ("eq", "lg") else ("i32", "u32"))
    },
    **{f"s_cmpk_{r}_{k}": _constant_compare for r in _COMPARISONS for k in ("i32", "u32")},
    **{f"s_bitcmp{v}_b{w}": _bit_compare for v in (0, 1) for w in (32, 64)},
    **{f"s_bitset{v}_b{w}": _bit_set for v in (0, 1) for w in (32, 64)},
    **dict.fromkeys(("s_movk_i32", "s_cmovk_i32", "s_addk_i32", "s_mulk_i32"), _constant_source),
    **dict.fromkeys(("s_cmov_b32", "s_cmov_b64"), _conditional_move),
    **{f"{n}_saveexec_b64": _save_exec for n in _SAVE_EXEC},
    **dict.fromkeys((*_CONDITIONS, "s_branch"), _branch),
    "s_getpc_b64": _get_pc,
    "s_setpc_b64": _set_pc,
    "s_swappc_b64": _set_pc,
    "s_setreg_b32": _set_mode,
    "s_setreg_imm32_b32": _set_mode,
    "s_getreg_b32": _get_register,
    "s_endpgm": _end,
    "s_sleep": _sleep,
    "s_barrier": _barrier,
    "s_trap": _trap,
    **dict.fromkeys(_NO_HALT, _nothing),
}
