"""Widths of LDS, buffer, global and scalar memory accesses; cache control; the clock.

Every address is a lane's own, so that with some lanes on the others' memory and registers must stay.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from asm_kit import LANES, Machine, Result, Snippet
from table_kit import ARCHS, EXECS, OLD, PARTIAL

WAIT = "\n  s_waitcnt vmcnt(0) lgkmcnt(0)"
# s[4:7] is a raw descriptor of the memory; s6 is num_records.
RAW = "s_mov_b32 s4, s94\n  s_and_b32 s5, s95, 0xffff\n  s_mov_b32 s6, {records}\n  s_mov_b32 s7, 0x27000\n  "
DATA = [0x00ABCDEF * n + 0x5A for n in range(260)]
SNIPPETS: dict[str, tuple[Snippet, Callable[[Result], None]]] = {}


def _half_of(pair: int) -> list[int]:
    """Pair of words ``pair`` of what ds_write_b128 left: 4 words a lane."""
    return [100 * (2 * (pair % 2) + k) + pair // 2 for k in range(2)]


def _loads(
    name: str, text: str, stride: int, want: Callable[[int], list[int]], words: int, **more: object
) -> None:
    """``text`` with v1 = ``stride`` n leaves ``want(n)`` in v10 and on, where lanes are on."""
    for on, mask in EXECS.items():
        vector = {1: [stride * n for n in LANES], **{10 + k: OLD for k in range(words)}}
        registers = tuple(range(10, 10 + words))
        start = "s_mov_b64 s[90:91], exec\n  s_mov_b64 exec, -1\n  "
        body = start + text.replace("<on>", "s_mov_b64 exec, s[90:91]") + WAIT
        snippet = Snippet(body, vector, exec=mask, results=registers, **more)  # type: ignore[arg-type]

        expected = [want(n) if mask >> n & 1 else [OLD] * words for n in LANES]

        def check(result: Result, expected: list[list[int]] = expected) -> None:
            got = [list(lane) for lane in zip(*result.vector.values(), strict=True)]
            assert got == expected

        SNIPPETS[f"{name}_{on}"] = (snippet, check)


def _stores(name: str, text: str, stride: int, want: Callable[[int], dict[int, int]]) -> None:
    """``text`` with v1 = ``stride`` n and v4 to v7 = 100 k + n writes ``want(n)``, words by number."""
    for on, mask in EXECS.items():
        vector = {1: [stride * n for n in LANES]}
        vector |= {4 + k: [100 * k + n for n in LANES] for k in range(4)}
        snippet = Snippet(text + WAIT, vector, exec=mask, memory=[OLD] * 260)
        kept = [OLD] * 260
        for n in LANES:
            for place, value in want(n).items() if mask >> n & 1 else ():
                kept[place] = value

        def check(result: Result, kept: list[int] = kept) -> None:
            assert result.memory == kept

        SNIPPETS[f"{name}_{on}"] = (snippet, check)


# Global and buffer memory.
_loads("global_load_dwordx4", "<on>\n  global_load_dwordx4 v[10:13], v1, s[94:95] offset:16", 16,
       lambda n: DATA[4 * n + 4 : 4 * n + 8], 4, memory=DATA + DATA[:4])  # fmt: skip
_loads("buffer_load_dwordx3", RAW.format(records=12 * 64) + "<on>\n  buffer_load_dwordx3 v[10:12], v1, s[4:7], 0 offen", 12,
       lambda n: DATA[3 * n : 3 * n + 3], 3, memory=DATA)  # fmt: skip
# Each word is checked by itself: the last lane with words has one of three.
_loads("buffer_load_dwordx3_bounds", RAW.format(records=12 * 9 + 4) + "<on>\n  buffer_load_dwordx3 v[10:12], v1, s[4:7], 0 offen", 12,
       lambda n: [DATA[w] if w < 28 else 0 for w in range(3 * n, 3 * n + 3)], 3, memory=DATA)  # fmt: skip
_stores("buffer_store_dwordx2", RAW.format(records=1040) + "buffer_store_dwordx2 v[4:5], v1, s[4:7], 0 offen offset:8", 16,
        lambda n: {4 * n + 2: n, 4 * n + 3: 100 + n})  # fmt: skip
_stores("buffer_store_dwordx4", RAW.format(records=1040) + "s_mov_b32 s8, 16\n  buffer_store_dwordx4 v[4:7], v1, s[4:7], s8 offen", 16,
        lambda n: {4 * n + 4 + k: 100 * k + n for k in range(4)})  # fmt: skip
_stores("buffer_store_dwordx4_bounds", RAW.format(records=168) + "buffer_store_dwordx4 v[4:7], v1, s[4:7], 0 offen", 16,
        lambda n: {4 * n + k: 100 * k + n for k in range(4) if 4 * n + k < 42})  # fmt: skip

# LDS: v4 to v7 hold what is written first, with every lane on.
LDS = "\n  ".join(f"v_add_u32 v{4 + k}, {100 * k}, v0" for k in range(4))
_WRITE = LDS + "\n  ds_write_b128 v1, v[4:7]" + WAIT + "\n  <on>\n  "
_loads("ds_read_b128", _WRITE + "ds_read_b128 v[10:13], v1", 16,
       lambda n: [100 * k + n for k in range(4)], 4, lds=1024)  # fmt: skip
_loads("ds_read2_b64", _WRITE + "ds_read2_b64 v[10:13], v1 offset0:1 offset1:0", 16,
       lambda n: [200 + n, 300 + n, n, 100 + n], 4, lds=1024)  # fmt: skip
# 64 elements of 8 bytes on: v1 walks the lower 512 bytes in steps of 8.
_loads("ds_read2st64_b64", LDS + "\n  v_lshlrev_b32 v2, 1, v1\n  ds_write_b128 v2, v[4:7]" + WAIT + "\n  <on>\n  ds_read2st64_b64 v[10:13], v1 offset0:0 offset1:1", 8,
       lambda n: [w for m in (n, n + 64) for w in _half_of(m)], 4, lds=1024)  # fmt: skip

_CLEAR = LDS + f"\n  v_mov_b32 v8, 0x{OLD:x}\n  v_lshlrev_b32 v3, 2, v0"
_CLEAR += "".join(f"\n  ds_write_b32 v3, v8 offset:{256 * k}" for k in range(4)) + WAIT
_BACK = WAIT + "\n  s_mov_b64 exec, -1"


def _lds_stores(name: str, text: str, stride: int, want: Callable[[int], dict[int, int]]) -> None:
    """1024 bytes of LDS after ``text``: 256 words, read back 64 at a time with every lane on."""
    for on, mask in EXECS.items():
        words = [OLD] * 256
        for n in LANES:
            for place, value in want(n).items() if mask >> n & 1 else ():
                words[place] = value
        lines = f"s_mov_b64 s[90:91], exec\n  s_mov_b64 exec, -1\n  {_CLEAR}\n  s_mov_b64 exec, s[90:91]\n  {text}{_BACK}"
        lines += "".join(f"\n  ds_read_b32 v{10 + k}, v3 offset:{256 * k}" for k in range(4)) + WAIT
        vector = {1: [stride * n for n in LANES]}
        snippet = Snippet(lines, vector, exec=mask, results=(10, 11, 12, 13), lds=1024)

        def check(result: Result, words: list[int] = words) -> None:
            assert [w for r in (10, 11, 12, 13) for w in result.vector[r]] == words

        SNIPPETS[f"{name}_{on}"] = (snippet, check)


_lds_stores("ds_write_b64", "ds_write_b64 v1, v[4:5] offset:8", 16,
            lambda n: {4 * n + 2: n, 4 * n + 3: 100 + n})  # fmt: skip
_lds_stores("ds_write2_b64", "ds_write2_b64 v1, v[4:5], v[6:7] offset0:1 offset1:0", 16,
            lambda n: {4 * n + 2: n, 4 * n + 3: 100 + n, 4 * n: 200 + n, 4 * n + 1: 300 + n})  # fmt: skip
_lds_stores("ds_write2st64_b32", "ds_write2st64_b32 v1, v4, v5 offset0:1 offset1:3", 4,
            lambda n: {64 + n: n, 192 + n: 100 + n})  # fmt: skip
# Without return: nothing but the memory changes, and the sum wraps.
_lds_stores("ds_add_u32", "v_or_b32 v4, 0x80000000, v4\n  ds_add_u32 v1, v4 offset:256", 4,
            lambda n: {64 + n: (OLD + (0x80000000 | n)) & 0xFFFFFFFF})  # fmt: skip


def _scalar_load(name: str, words: int) -> None:
    target = f"s[20:{19 + words}]"
    text = f"s_mov_b32 s{20 + words}, 0x{OLD:x}\n  {name} {target}, s[94:95], 0x8{WAIT}"

    def check(result: Result) -> None:
        # The frame around a text gives back up to ten: the first eight and, of eight, the one behind.
        behind = OLD if words == 8 else DATA[10]
        assert [result.scalar[r] for r in range(20, 29)] == [*DATA[2:10], behind]

    scalars = tuple(range(20, 29))
    SNIPPETS[name] = (Snippet(text, scalars=scalars, memory=DATA, exec=0), check)


_scalar_load("s_load_dwordx8", 8)
_scalar_load("s_load_dwordx16", 16)


def _upper(result: Result) -> None:
    assert [result.scalar[r] for r in range(28, 37)] == [*DATA[10:18], OLD]


SNIPPETS["s_load_dwordx16_upper"] = (
    Snippet(
        f"s_mov_b32 s36, 0x{OLD:x}\n  s_mov_b32 s9, 4\n  s_load_dwordx16 s[20:35], s[94:95], s9 offset:0x4{WAIT}",
        scalars=tuple(range(28, 37)),
        memory=DATA,
    ),
    _upper,
)


# Cache control orders accesses of other agents; here it leaves everything as it is.
def _unchanged(result: Result) -> None:
    assert result.vector[10] == [n if PARTIAL >> n & 1 else OLD for n in LANES]
    assert result.memory == [n if PARTIAL >> n & 1 else OLD for n in LANES]
    assert result.scalar == {5: 7, 106: 9, 126: PARTIAL & 0xFFFFFFFF, 127: PARTIAL >> 32, 20: 1}


SNIPPETS["cache_control"] = (
    Snippet(
        "s_cmp_eq_u32 0, 0\n  global_store_dword v1, v2, s[94:95]\n  buffer_wbl2 sc1\n  buffer_inv sc1\n  s_waitcnt vmcnt(0)\n"
        "  buffer_wbl2 sc0 sc1\n  buffer_inv sc0 sc1\n  s_cselect_b32 s20, 1, 0\n  global_load_dword v10, v1, s[94:95]" + WAIT,
        {1: [4 * n for n in LANES], 2: list(LANES), 10: OLD},
        {5: 7, 106: 9},
        exec=PARTIAL,
        results=(10,),
        scalars=(5, 106, 126, 127, 20),
        memory=[OLD] * 64,
    ),
    _unchanged,
)  # fmt: skip


def _clock(result: Result) -> None:
    first, second = (result.scalar[r] | result.scalar[r + 1] << 32 for r in (4, 6))
    assert first <= second < 2**63
    assert result.scalar[8] == OLD


SNIPPETS["s_memrealtime"] = (
    Snippet(
        f"s_mov_b32 s8, 0x{OLD:x}\n  s_memrealtime s[4:5]{WAIT}\n  s_sleep 1\n  s_memrealtime s[6:7]{WAIT}",
        scalars=(4, 5, 6, 7, 8),
    ),
    _clock,
)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Machine]:
    snippets = {name: snippet for name, (snippet, _) in SNIPPETS.items()}
    return {a: Machine(snippets, a, tmp_path_factory.mktemp(a)) for a in ARCHS}


@pytest.mark.parametrize("name", SNIPPETS)
@pytest.mark.parametrize("arch", ARCHS)
def test_memory(machines: dict[str, Machine], arch: str, name: str) -> None:
    SNIPPETS[name][1](machines[arch].run(name))
