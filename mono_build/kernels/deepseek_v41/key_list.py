"""The key-list launch: each token's keys for K2, where an index source's K1 could not list them.

The engine's compressor and indexer run between K1 and K2 of an index source, so its keys are known only
then. K2 of gfx950 can list them itself; on gfx942 this launch does, as K1 does on all other layers.

Semantics are those of vLLM 0.33.0's ``attention/front.py`` (``stage_kt``) and ``attention/back.py``, which
reads the table.
"""

from dataclasses import dataclass
from typing import Any

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr.typing import AddressSpace, Int32, Int64, PointerType, Uint32, Uint64

# Of the model (DeepSeek-V4.1-Flash's published config): keys of the sliding window and of the selection.
WINDOW = 128
TOPK = 512
# Entries of a token's row of the table.
KEYS = TOPK + WINDOW
# Bit 31 of an entry: it is a slot of the compressed cache.
_COMPRESSED = -(1 << 31)
_NONE = -1
_STREAM = fx.Stream(None)


@dataclass(frozen=True)
class KeyListBuild:
    """``tokens``: rows of the step, and workgroups of the launch."""

    tokens: int


def build_key_list(build: KeyListBuild) -> Any:
    """The launcher of one width; a workgroup lists one token's keys, a work-item each entry.

    Addresses, S tokens:
        kt: [S, 640] int32, written: ``selected`` compressed slots with bit 31 set (-1 where the
            selection has a hole), then the window's slots, then -1.
        klen: [2 S] int32, written: a token's number of keys, and at S + t how many of them are selected.
        slot: [S] int64; a token whose slot is negative is padding and has no keys.
        pos: [S] int64 positions.
        swa_idx: [S, 128] int32 slots of the sliding window; swa_lens: [S] int32, how many are keys.
        topk: [S, 512] int32 rows of the request's compressed keys, -1 for none.
        t2r: [S] int32, a token's request, a row of the block table.
        comp_bt: [requests, bt_stride] int32 blocks of the compressed cache.

    Numbers: ``bt_stride`` entries of a block table's row; ``comp_block`` rows of a block; ``ratio``, 1 or
    2 positions a compressed row, or 0 for window keys alone.

    Of a token the first min((pos + 1) / ratio, 512) entries of its selection are keys. ``topk``, ``t2r``
    and ``comp_bt`` are read for those alone, so with a ratio of 0 they may be any address.
    """
    tokens = build.tokens

    # The last argument is an address: three trailing numbers would be fetched as four, past the end.
    @flyc.kernel(  # type: ignore[untyped-decorator]
        name=f"deepseek_v41_key_list_s{tokens}", known_block_size=[KEYS, 1, 1]
    )
    def list_keys(
        kt: Int64,
        klen: Int64,
        slot: Int64,
        pos: Int64,
        swa_idx: Int64,
        swa_lens: Int64,
        topk: Int64,
        t2r: Int64,
        ratio: Int32,
        comp_block: Int32,
        bt_stride: Int32,
        comp_bt: Int64,
    ) -> None:
        token, entry = fx.block_idx.x, fx.thread_idx.x
        selected, length = Int32(0), Int32(0)
        if _load(slot, token, Int64) >= 0:
            if ratio > 0:
                positions = Uint32(_load(pos, token, Int64) + 1)
                selected = Int32(fx.min(positions // Uint32(ratio), Uint32(TOPK)))
            length = selected + fx.min(_load(swa_lens, token, Int32), Int32(WINDOW))
        key = Int32(_NONE)
        if entry < selected:
            row = _load(topk, token * TOPK + entry, Int32)
            if row >= 0:
                block = Uint32(row) // Uint32(comp_block)
                table = Uint64(_load(t2r, token, Uint32)) * Uint64(Uint32(bt_stride))
                first = _load(comp_bt, table + Uint64(block), Int32) * comp_block
                key = (first + Int32(Uint32(row) % Uint32(comp_block))) | _COMPRESSED
        else:
            if entry < length:
                key = _load(swa_idx, token * WINDOW + entry - selected, Int32)
        _store(kt, token * KEYS + entry, key)
        if entry == 0:
            _store(klen, token, length)
            _store(klen, token + tokens, selected)

    @flyc.jit  # type: ignore[untyped-decorator]
    def launch(
        kt: Int64,
        klen: Int64,
        slot: Int64,
        pos: Int64,
        swa_idx: Int64,
        swa_lens: Int64,
        topk: Int64,
        t2r: Int64,
        ratio: Int32,
        comp_block: Int32,
        bt_stride: Int32,
        comp_bt: Int64,
        stream: fx.Stream = _STREAM,
    ) -> None:
        list_keys(
            kt,
            klen,
            slot,
            pos,
            swa_idx,
            swa_lens,
            topk,
            t2r,
            ratio,
            comp_block,
            bt_stride,
            comp_bt,
        ).launch(grid=(tokens, 1, 1), block=(KEYS, 1, 1), stream=stream)

    return launch


def _element(base: Any, index: Any, kind: Any) -> Any:
    size = kind.width // 8
    place = PointerType.get(kind.ir_type, AddressSpace.Global, size)
    return fx.inttoptr(place, base + Int64(index) * size)


def _load(base: Any, index: Any, kind: Any) -> Any:
    return fx.generic_load(_element(base, index, kind))


def _store(base: Any, index: Any, value: Any) -> None:
    fx.generic_store(_element(base, index, Int32), value)
