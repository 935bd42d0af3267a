"""The key list on emulated devices, against the definition of a token's keys and against hand-made tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from key_list_kit import (
    ARCHITECTURES,
    KEYS,
    TOPK,
    WILD,
    WINDOW,
    Tables,
    listed,
    plain,
    without_selection,
)

from mono_build.emulator.references.deepseek_v41 import front

pytestmark = [pytest.mark.flydsl, pytest.mark.parametrize("arch", ARCHITECTURES)]
BIT = -(2**31)


def live(tables: Tables, token: int, position: int, window: int, request: int = 0) -> None:
    """Make a token of ``tables`` one at ``position`` with ``window`` slots (1000 token, and so on)."""
    tables.slot[token], tables.pos[token] = 7 + token, position
    tables.swa_lens[token] = window
    tables.swa_idx[token, :window] = 1000 * token + torch.arange(window)
    if tables.ratio:
        tables.t2r[token] = request
        selected = min((position + 1) // tables.ratio, TOPK)
        tables.topk[token, :selected] = torch.arange(selected)


def test_three_tokens_by_hand(key_lists: Path, arch: str) -> None:
    tables = plain(3, 2, block=4, requests=2, blocks=3)
    tables.comp_bt[:] = torch.tensor([[10, 20, 30], [40, 50, 60]])
    live(tables, 0, position=12, window=2, request=1)
    tables.topk[0, :6] = torch.tensor([5, -1, 0, 3, 11, -1])
    live(tables, 2, position=0, window=1)
    table, counts = listed(key_lists, arch, tables)
    # Rows 5, 0, 3 and 11 of blocks of four: in the second, first, first and third block of request 1.
    keys = [BIT + 201, -1, BIT + 160, BIT + 163, BIT + 243, -1, 0, 1]
    assert table[0].tolist() == keys + [-1] * (KEYS - 8)
    assert table[1].tolist() == [-1] * KEYS
    # (0 + 1) / 2 is none.
    assert table[2].tolist() == [2000] + [-1] * (KEYS - 1)
    assert counts.tolist() == [[8, 0, 1], [6, 0, 0]]


@pytest.mark.parametrize(
    ("position", "ratio", "selected"),
    [
        (0, 1, 1),
        (0, 2, 0),
        (1, 2, 1),
        (2, 2, 1),
        (TOPK - 2, 1, TOPK - 1),
        (TOPK - 1, 1, TOPK),
        (TOPK, 1, TOPK),
        (2 * TOPK - 2, 2, TOPK - 1),
        (2 * TOPK - 1, 2, TOPK),
        (2 * TOPK, 2, TOPK),
        (1 << 20, 2, TOPK),
    ],
)
def test_how_many_selected_keys_a_position_has(
    key_lists: Path, arch: str, position: int, ratio: int, selected: int
) -> None:
    tables = plain(1, ratio)
    live(tables, 0, position, window=min(position + 1, WINDOW))
    table, counts = listed(key_lists, arch, tables)
    assert counts.tolist() == [[selected + min(position + 1, WINDOW)], [selected]]
    assert int((table < -1).sum()) == selected


def test_a_full_row_of_the_table_has_no_end(key_lists: Path, arch: str) -> None:
    tables = plain(1, 1)
    live(tables, 0, 5000, WINDOW)
    table, counts = listed(key_lists, arch, tables)
    assert counts.tolist() == [[KEYS], [TOPK]]
    assert table[0].tolist() == [BIT + i for i in range(TOPK)] + [*range(WINDOW)]


@pytest.mark.parametrize("length", [0, WINDOW, WINDOW + 1, WILD])
def test_no_more_of_the_window_is_listed_than_its_row_holds(
    key_lists: Path, arch: str, length: int
) -> None:
    tables = plain(1, 1)
    live(tables, 0, 300, WINDOW)
    tables.swa_lens[0] = length
    table, counts = listed(key_lists, arch, tables)
    assert counts.tolist() == [[301 + min(length, WINDOW)], [301]]
    assert table[0, 301:].tolist() == [*range(min(length, WINDOW))] + [-1] * (
        KEYS - 301 - min(length, WINDOW)
    )


@pytest.mark.parametrize("ratio", [0, 1, 2])
def test_a_step_of_padding_reads_nothing_but_the_slots(
    key_lists: Path, arch: str, ratio: int
) -> None:
    tables = plain(3, ratio)
    none = torch.empty(0, dtype=torch.int32)
    others = dict.fromkeys(("pos", "swa_idx", "swa_lens", "topk", "t2r", "comp_bt"), none)
    table, counts = listed(key_lists, arch, replace(tables, **others))
    assert bool((table == -1).all())
    assert counts.tolist() == [[0, 0, 0], [0, 0, 0]]


def test_window_keys_alone_need_no_selection(key_lists: Path, arch: str) -> None:
    tables = plain(3, 0)
    for token, (position, window) in enumerate([(0, 1), (127, 128), (4000, 128)]):
        live(tables, token, position, window)
    table, counts = listed(key_lists, arch, without_selection(tables))
    assert counts.tolist() == [[1, 128, 128], [0, 0, 0]]
    assert table[1].tolist() == [*range(1000, 1128)] + [-1] * TOPK


def test_tables_are_read_no_further_than_their_last_key(key_lists: Path, arch: str) -> None:
    tables = plain(3, 2, block=16, requests=2, blocks=4)
    live(tables, 0, 99, 100)
    live(tables, 2, 6, 5, request=1)
    # The last token has three selected keys in its request's first block, and five of the window.
    short = replace(
        tables,
        topk=tables.topk.flatten()[: 2 * TOPK + 3].clone(),
        swa_idx=tables.swa_idx.flatten()[: 2 * WINDOW + 5].clone(),
        comp_bt=tables.comp_bt.flatten()[:5].clone(),
    )
    table, counts = listed(key_lists, arch, short)
    assert counts.tolist() == [[150, 0, 8], [50, 0, 3]]
    assert table[2, :8].tolist() == [BIT + 64, BIT + 65, BIT + 66, *range(2000, 2005)]


def definition(tables: Tables) -> tuple[torch.Tensor, torch.Tensor]:
    """The reference that K1's table is held against, which is not written from this launch."""
    given = front.KeyInputs(
        tables.slot,
        tables.pos,
        tables.swa_idx,
        tables.swa_lens,
        tables.ratio,
        tables.topk,
        tables.t2r,
        tables.comp_bt,
        tables.comp_block,
    )
    want = front.keys(given)
    return want.table, torch.stack([want.length, want.compressed])


@pytest.mark.parametrize("block", [1, 7, 32, 64, 256])
@pytest.mark.parametrize("ratio", [1, 2])
def test_many_requests_with_holes_and_padding_as_defined(
    key_lists: Path, arch: str, ratio: int, block: int
) -> None:
    random = torch.Generator().manual_seed(100 * ratio + block)
    most = 3000 // ratio
    blocks = most // block + 1
    tables = plain(8, ratio, block=block, requests=5, blocks=blocks)
    # A block table has room for more blocks than a request has, and requests are in no order.
    shuffled = torch.randperm(5 * blocks, generator=random).view(5, blocks).int()
    wild = torch.full((5, 3), WILD, dtype=torch.int32)
    tables = replace(tables, comp_bt=torch.cat([shuffled, wild], 1), bt_stride=blocks + 3)
    steps = [(2999, 4), (0, 2), (1, 2), (126, 0), (None, 0), (1023, 3), (1024, 3), (None, 1)]
    for token, (position, request) in enumerate(steps):
        if position is not None:
            live(tables, token, position, min(position + 1, WINDOW), request)
            rows = (position + 1) // ratio
            chosen = torch.randperm(rows, generator=random)[:TOPK].int()
            tables.topk[token, : len(chosen)] = chosen
            holes = torch.rand(len(chosen), generator=random) < 0.1
            tables.topk[token, : len(chosen)][holes] = -1
    table, counts = listed(key_lists, arch, tables)
    wanted_table, wanted_counts = definition(tables)
    assert torch.equal(counts, wanted_counts)
    assert torch.equal(table, wanted_table)
    # Tokens with no selected key and with all of them were among these.
    assert {int(v) for v in counts[1]} >= {0, TOPK}
