"""Memory instructions: widths, bounds, inactive lanes, atomics that return; and accesses that must not be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from asm_kit import LANES, Machine, Result, Snippet

from mono_build.emulator.errors import NotModelledInstruction, WildAccess, WrongJump

OLD = 0xAAAA5555
EVEN = 0x5555555555555555
WAIT = "\n  s_waitcnt vmcnt(0) lgkmcnt(0)"
FOUR = [4 * n for n in LANES]
ARCHS = ("gfx942", "gfx950")


@dataclass(frozen=True)
class Try:
    """A snippet and what must be true of its result."""

    snippet: Snippet
    check: Callable[[Result], None]
    archs: tuple[str, ...] = ARCHS


TRIES: dict[str, Try] = {}
WILD: dict[str, tuple[Snippet, type[Exception], str]] = {}


def rows(
    name: str, text: str, inputs: dict[int, object], want: dict[int, object], **more: object
) -> None:
    """``text`` leaves ``want`` in vector registers; ``kept`` is what memory must hold then."""
    kept = more.pop("kept", None)
    snippet = Snippet(text + WAIT, vector=inputs, results=tuple(want), **more)  # type: ignore[arg-type]

    def check(result: Result) -> None:
        for number, values in want.items():
            lanes = [values] * 64 if isinstance(values, int) else list(values)  # type: ignore[call-overload]
            assert result.vector[number] == [v & 0xFFFFFFFF for v in lanes]
        if kept is not None:
            assert result.memory == kept

    TRIES[name] = Try(snippet, check)


# LDS.
rows(
    "lds_b32_round_trip",
    f"ds_write_b32 v1, v2 offset:8{WAIT}\n  ds_read_b32 v10, v3 offset:8",
    {1: FOUR, 2: [n * n for n in LANES], 3: [4 * (63 - n) for n in LANES]},
    {10: [(63 - n) ** 2 for n in LANES]},
    lds=264,
)
rows(
    "lds_read_keeps_inactive_lanes",
    f"s_mov_b64 exec, -1\n  ds_write_b32 v1, v2{WAIT}\n  s_mov_b64 exec, 5\n  ds_read_b32 v10, v3",
    {1: FOUR, 2: list(LANES), 3: [4 * n if n in (0, 2) else 0xFFFFFFF0 for n in LANES], 10: OLD},
    {10: [n if n in (0, 2) else OLD for n in LANES]},
    lds=256,
)
rows(
    "lds_sub_dwords",
    f"ds_write_b8 v1, v2 offset:1\n  ds_write_b16 v1, v2 offset:2{WAIT}\n  ds_read_i8 v10, v1 offset:1\n  ds_read_u16 v11, v1 offset:2\n  ds_read_u8 v12, v1 offset:3\n  ds_read_i16 v13, v1 offset:2",
    {1: FOUR, 2: 0x1234FFF0},
    {10: 0xFFFFFFF0, 11: 0xFFF0, 12: 0xFF, 13: 0xFFFFFFF0},
    lds=256,
)
rows(
    "lds_b128",
    f"ds_write_b128 v1, v[4:7]{WAIT}\n  ds_read_b96 v[10:12], v1\n  ds_read_b64 v[14:15], v1 offset:8",
    {1: [16 * n for n in LANES], 4: 1, 5: list(LANES), 6: 3, 7: 4},
    {10: 1, 11: list(LANES), 12: 3, 14: 3, 15: 4},
    lds=1024,
)
rows(
    "lds_two_addresses",
    f"ds_write2_b32 v1, v2, v3 offset0:1 offset1:2{WAIT}\n  ds_read2_b32 v[10:11], v1 offset0:2 offset1:1",
    {1: [12 * n for n in LANES], 2: list(LANES), 3: [100 + n for n in LANES]},
    {10: [100 + n for n in LANES], 11: list(LANES)},
    lds=1024,
)
rows(
    "lds_two_addresses_of_64_elements",
    f"ds_write2st64_b64 v1, v[2:3], v[4:5] offset0:0 offset1:1{WAIT}\n  ds_read_b64 v[10:11], v1 offset:512\n  ds_read2st64_b32 v[12:13], v1 offset0:0 offset1:2",
    {1: [8 * n for n in LANES], 2: 1, 3: 2, 4: 3, 5: list(LANES)},
    {10: 3, 11: list(LANES), 12: 1, 13: 3},
    lds=1024,
)
rows(
    "lds_atomics_in_order_of_lanes",
    f"ds_write_b32 v1, v2{WAIT}\n  ds_add_rtn_u32 v10, v1, v3{WAIT}\n  ds_read_b32 v11, v1",
    {1: 0, 2: 100, 3: 2},
    {10: [100 + 2 * n for n in LANES], 11: 228},
    lds=4,
)
rows(
    "lds_or",
    f"ds_write_b32 v1, v2{WAIT}\n  ds_or_b32 v1, v3{WAIT}\n  ds_read_b32 v11, v1",
    {1: 0, 2: 0, 3: [1 << (n % 32) if n < 8 else 0 for n in LANES]},
    {11: 0xFF},
    lds=4,
)
rows(
    "lds_compare_and_store",
    f"ds_write_b32 v1, v2{WAIT}\n  ds_cmpst_rtn_b32 v10, v1, v3, v4{WAIT}\n  ds_read_b32 v11, v1",
    {1: FOUR, 2: list(LANES), 3: 7, 4: 99},
    {10: list(LANES), 11: [99 if n == 7 else n for n in LANES]},
    lds=256,
)

# Global memory.
rows(
    "global_by_scalar_base",
    "global_load_dword v10, v1, s[94:95] offset:4",
    {1: FOUR},
    {10: [n + 1 for n in LANES]},
    memory=range(65),
)
rows(
    "global_with_negative_offset",
    "v_add_u32 v1, 8, v1\n  global_load_dword v10, v1, s[94:95] offset:-8",
    {1: FOUR},
    {10: list(LANES)},
    memory=range(64),
)
rows(
    "global_by_64_bit_address",
    "v_mov_b32 v2, s94\n  v_mov_b32 v3, s95\n  v_add_co_u32 v2, vcc, v2, v1\n  v_addc_co_u32 v3, vcc, 0, v3, vcc\n  global_load_dwordx2 v[10:11], v[2:3], off",
    {1: FOUR},
    {10: list(LANES), 11: [n + 1 for n in LANES]},
    memory=range(65),
)
rows(
    "global_loads_into_their_address",
    "global_load_dword v1, v1, s[94:95]",
    {1: [4 * (63 - n) for n in LANES]},
    {1: [63 - n for n in LANES]},
    memory=range(64),
)
rows(
    "global_sub_dwords",
    "global_load_sbyte v10, v1, s[94:95] offset:1\n  global_load_ushort v11, v1, s[94:95] offset:1\n  global_load_short_d16_hi v12, v1, s[94:95] offset:2",
    {1: 0, 12: OLD},
    {10: 0xFFFFFF80, 11: 0x3480, 12: 0x12345555},
    memory=[0x12348056],
)
rows(
    "global_store_only_where_exec_is_on",
    "global_store_dword v1, v2, s[94:95]",
    {1: FOUR, 2: list(LANES)},
    {},
    exec=EVEN,
    memory=[OLD] * 64,
    kept=[n if n % 2 == 0 else OLD for n in LANES],
)
rows(
    "global_store_short",
    "global_store_short v1, v2, s[94:95] offset:2",
    {1: FOUR, 2: 0x12345678},
    {},
    memory=[OLD] * 64,
    kept=[0x56785555] * 64,
)
rows(
    "global_atomic_returns_the_old_value",
    "global_atomic_add v10, v1, v2, s[94:95] sc0",
    {1: 0, 2: 3, 10: OLD},
    {10: [5 + 3 * n for n in LANES]},
    memory=[5],
    kept=[5 + 192],
)
rows(
    "global_atomic_without_return",
    "global_atomic_umax v1, v2, s[94:95]",
    {1: 0, 2: list(LANES), 10: OLD},
    {10: OLD},
    memory=[5],
    kept=[63],
)
rows(
    "global_atomic_cmpswap",
    "global_atomic_cmpswap v10, v1, v[2:3], s[94:95] sc0",
    {1: FOUR, 2: 99, 3: 7},
    {10: list(LANES)},
    memory=range(64),
    kept=[99 if n == 7 else n for n in LANES],
)
rows(
    "global_atomic_add_x2",
    "global_atomic_add_x2 v[10:11], v1, v[2:3], s[94:95] sc0",
    {1: 0, 2: 0xFFFFFFFF, 3: 0},
    {10: 1, 11: 0},
    exec=1,
    memory=[1, 0],
    kept=[0, 1],
)
TRIES["global_atomic_add_x2"] = Try(
    TRIES["global_atomic_add_x2"].snippet, lambda r: _only_lane_0(r)
)


def _only_lane_0(result: Result) -> None:
    assert (result.vector[10][0], result.vector[11][0], result.memory) == (1, 0, [0, 1])


rows(
    "scalar_loads",
    "s_load_dwordx2 s[4:5], s[94:95], 0x4\n  s_mov_b32 s6, 8\n  s_load_dword s7, s[94:95], s6 offset:0x4\n  s_waitcnt lgkmcnt(0)\n  v_mov_b32 v10, s4\n  v_mov_b32 v11, s5\n  v_mov_b32 v12, s7",
    {},
    {10: 11, 11: 12, 12: 13},
    memory=[10, 11, 12, 13],
)

# Buffers: s[4:7] is a raw descriptor of the memory; s6 is num_records.
_RAW = "s_mov_b32 s4, s94\n  s_and_b32 s5, s95, 0xffff\n  s_mov_b32 s6, {records}\n  s_mov_b32 s7, 0x27000\n  "


def raw(text: str, records: int) -> str:
    """``text`` behind a descriptor of ``records`` bytes."""
    return _RAW.format(records=records) + text


rows(
    "buffer_offen",
    raw("buffer_load_dword v10, v1, s[4:7], 0 offen offset:4", 260),
    {1: FOUR},
    {10: [n + 1 for n in LANES]},
    memory=range(65),
)
rows(
    "buffer_reads_0_beyond_its_end",
    raw("buffer_load_dword v10, v1, s[4:7], 0 offen", 40),
    {1: FOUR, 10: OLD},
    {10: [n if n < 10 else 0 for n in LANES]},
    memory=range(10),
)
rows(
    "buffer_checks_each_word",
    raw("buffer_load_dwordx4 v[10:13], v1, s[4:7], 0 offen", 40),
    {1: FOUR, 10: OLD, 11: OLD, 12: OLD, 13: OLD},
    {10 + k: [n + k if n + k < 10 else 0 for n in LANES] for k in range(4)},
    memory=range(10),
)
rows(
    "buffer_of_no_records_reads_0",
    raw("buffer_load_dwordx2 v[10:11], v1, s[4:7], 0 offen", 0),
    {1: FOUR, 10: OLD, 11: OLD},
    {10: 0, 11: 0},
)
rows(
    "buffer_drops_writes_beyond_its_end",
    raw("buffer_store_dword v2, v1, s[4:7], 0 offen", 40),
    {1: FOUR, 2: 7},
    {},
    memory=[OLD] * 12,
    kept=[7] * 10 + [OLD] * 2,
)
rows(
    "buffer_soffset_moves_the_address",
    raw("s_mov_b32 s8, 8\n  buffer_load_dword v10, v1, s[4:7], s8 offen", 0xFFFFFFFF),
    {1: FOUR},
    {10: [n + 2 for n in LANES]},
    memory=range(66),
)
rows(
    "buffer_unaligned_sub_dwords",
    raw(
        "buffer_load_ushort v10, v1, s[4:7], 0 offen offset:2\n  buffer_load_sbyte v11, v1, s[4:7], 0 offen offset:3\n  buffer_store_short v2, v1, s[4:7], 0 offen",
        256,
    ),
    {1: FOUR, 2: 0x12345678},
    {10: 0xF234, 11: 0xFFFFFFF2},
    memory=[0xF2340000] * 64,
    kept=[0xF2345678] * 64,
)
rows(
    "buffer_atomic_returns",
    raw("buffer_atomic_add v2, v1, s[4:7], 0 offen sc0", 4),
    {1: [0, 4] * 32, 2: 3},
    {2: [5 + 3 * (n // 2) if n % 2 == 0 else 0 for n in LANES]},
    memory=[5, 6],
    kept=[101, 6],
)
rows(
    "inactive_lanes_have_no_address",
    raw("buffer_load_dword v10, v1, s[4:7], 0 offen", 0xFFFFFFFF),
    {1: [0 if n == 0 else 0xF0000000 for n in LANES], 10: OLD},
    {10: [3] + [OLD] * 63},
    exec=1,
    memory=[3],
)
rows(
    "scratch",
    f"v_add_u32 v1, 4, v1\n  scratch_store_dword off, v1, off offset:8{WAIT}\n  scratch_load_dword v10, off, off offset:8",
    {1: list(LANES)},
    {10: [n + 4 for n in LANES]},
    scratch=16,
)

# What must be reported: the lane, the address and the instruction.
WILD["global_load_before_the_allocation"] = (
    Snippet(
        "global_load_dword v10, v1, s[94:95] offset:-4" + WAIT, vector={1: FOUR}, memory=range(64)
    ),
    WildAccess,
    "lane 0 reads 4 bytes.*4 bytes before",
)
WILD["global_store_behind_the_end"] = (
    Snippet("global_store_dwordx2 v1, v[2:3], s[94:95]" + WAIT, vector={1: FOUR}, memory=range(64)),
    WildAccess,
    "lane 63 writes 8 bytes.*global_store_dwordx2 at 0x",
)
WILD["buffer_with_endless_records"] = (
    Snippet(
        raw("buffer_load_dword v10, v1, s[4:7], 0 offen" + WAIT, 0xFFFFFFFF),
        vector={1: FOUR},
        memory=range(10),
    ),
    WildAccess,
    "lane 10 reads 4 bytes.*0 bytes behind the end of device 0's allocation of 40 bytes",
)
WILD["lds_beyond_its_size"] = (
    Snippet("ds_read_b64 v[10:11], v1" + WAIT, vector={1: FOUR}, lds=256),
    WildAccess,
    "lane 63 reads 8 bytes at LDS offset 252, and there are 256 bytes",
)
WILD["scratch_beyond_its_size"] = (
    Snippet("scratch_load_dword v10, off, off offset:16" + WAIT, scratch=16),
    WildAccess,
    "scratch offset 16, and there are 16",
)
WILD["instruction_without_semantics"] = (
    Snippet("v_cos_f16 v10, v1"),
    NotModelledInstruction,
    r"does not model v_cos_f16: no emitter\n.*v_cos_f16 at 0x[0-9a-f]+ \[7e149501\]",
)
WILD["jump_to_nowhere"] = (
    Snippet("s_getpc_b64 s[4:5]\n  s_add_u32 s4, s4, 2\n  s_setpc_b64 s[4:5]"),
    WrongJump,
    "leads to no instruction",
)
WILD["trap"] = (Snippet("s_trap 2"), WrongJump, "s_trap was executed")


@pytest.fixture(scope="module", params=ARCHS)
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    arch = str(request.param)
    snippets = {n: t.snippet for n, t in TRIES.items()} | {n: w[0] for n, w in WILD.items()}
    return Machine(snippets, arch, tmp_path_factory.mktemp(arch))


@pytest.mark.parametrize("name", TRIES)
def test_a_memory_instruction_does_what_its_document_says(machine: Machine, name: str) -> None:
    TRIES[name].check(machine.run(name))


@pytest.mark.parametrize("name", WILD)
def test_what_must_not_happen_is_reported(machine: Machine, name: str) -> None:
    _, error, text = WILD[name]
    with pytest.raises(error, match=f"(?s){text}") as raised:
        machine.run(name)
    assert f"kernel {name}" in str(raised.value)
    assert "device 0, workgroup (0, 0, 0), wave 0" in str(raised.value)
