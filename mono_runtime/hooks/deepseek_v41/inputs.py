"""What a decode step gives a layer: tensors of the engine, what they have to look like, and their numbers.

The kernels take addresses and strides, so a tensor of another type or layout would be read as garbage.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from mono_runtime.errors import ArgumentMismatch
from mono_runtime.hooks.deepseek_v41.weights import HIDDEN, STREAMS

if TYPE_CHECKING:
    import torch

# Bytes of a record of the KV cache (fp8_ds_mla): 576 of values, 8 of scales. Blocks hold all values
# before all scales, but the sum is what counts here.
RECORD = 584
SELECTED = 512  # entries of a row of the selection


class LayerStep(NamedTuple):
    """What a decode step gives a layer, beside the activations. M is the step's rows.

    A layer whose compress ratio is 0 has none of the last three. Give the same tensor objects again
    where nothing changed (views of caches, the step's metadata in every layer): they are looked at once.
    """

    positions: torch.Tensor  # [M] int64
    slot_mapping: torch.Tensor  # [M] int64; -1 is a padding row
    swa_cache: torch.Tensor  # [blocks, rows, 584] uint8: records of the sliding window
    swa_indices: torch.Tensor  # [M or more, 1, swa_width] int32
    swa_lens: torch.Tensor  # [M or more] int32
    token_to_req: torch.Tensor  # [M or more] int32
    topk_indices: torch.Tensor | None = None  # [M or more, 512] int32
    comp_cache: torch.Tensor | None = None  # [blocks, rows, 584] uint8: compressed records
    comp_block_table: torch.Tensor | None = None  # [requests, blocks] int32


class LayerOutputs(NamedTuple):
    """A layer's outputs, the next layer's inputs."""

    out: torch.Tensor  # [M, 5120] bfloat16: the experts' output, reduced over the ranks
    residual: torch.Tensor  # [M, 4, 5120] bfloat16: the streams after the FFN seam
    post_mix: torch.Tensor  # [M, 4, 1] float32
    res_mix: torch.Tensor  # [M, 4, 4] float32
    pre_mix: torch.Tensor  # [M, 4] float32


class StepNumbers:
    """The numbers of a step's metadata, in the order of `arguments.STEP`, and of which tensors they are."""

    __slots__ = ("_of", "numbers", "rows")

    def __init__(self, step: LayerStep, rows: int, swa_width: int) -> None:
        """Look at the tensors; `ArgumentMismatch` lists all that do not fit."""
        lens, requests = step.swa_lens, step.token_to_req
        _require(
            _Look("positions", step.positions, "int64").contiguous(rows),
            _Look("slot_mapping", step.slot_mapping, "int64").contiguous(rows),
            _Look("swa_indices", step.swa_indices, "int32").rows_of(rows, swa_width),
            _Look("swa_lens", lens, "int32").contiguous(rows),
            _Look("token_to_req", requests, "int32").contiguous(rows),
        )
        self.rows = rows
        self._of = (step.positions, step.slot_mapping, step.swa_indices, lens, requests)
        self.numbers = tuple(t.data_ptr() for t in self._of)

    def are_of(self, step: LayerStep, rows: int) -> bool:
        """Whether these are the numbers of ``step``: it has the very same tensors."""
        positions, slots, indices, lens, requests = self._of
        return (
            step.positions is positions
            and step.slot_mapping is slots
            and step.swa_indices is indices
            and step.swa_lens is lens
            and step.token_to_req is requests
            and rows == self.rows
        )


class CacheNumbers:
    """The numbers of a layer's caches, in the order of `arguments.CACHES`, and of which tensors they are.

    Caches are not kept alive: there is one of these for each width, also for those that are never run again.
    """

    __slots__ = ("_far", "_swa", "_topk", "numbers")

    def __init__(self, step: LayerStep, rows: int, ratio: int, dummy: int) -> None:
        """Look at the tensors; ``dummy`` is an address for those that a layer of ratio 0 does not have.

        Raises:
            ArgumentMismatch: lists all that do not fit.
        """
        swa, far, topk = step.swa_cache, step.comp_cache, step.topk_indices
        looks = [_Look("swa_cache", swa, "uint8").records()]
        if ratio:
            looks += [
                _Look("topk_indices", topk, "int32").rows_of(rows, SELECTED),
                _Look("comp_cache", far, "uint8").records(),
            ]
        _require(*looks)
        self._swa, self._topk = weakref.ref(swa), topk
        self._far = None if far is None else weakref.ref(far)
        compressed = (dummy, 0, 1, dummy)
        if ratio and far is not None and topk is not None:
            compressed = (far.data_ptr(), far.stride(0), far.shape[1], topk.data_ptr())
        self.numbers = (swa.data_ptr(), swa.stride(0), swa.shape[1], *compressed)

    def are_of(self, step: LayerStep) -> bool:
        """Whether these are the numbers of ``step``: it has the very same tensors."""
        far = step.comp_cache
        same = far is None if self._far is None else far is not None and self._far() is far
        return same and self._swa() is step.swa_cache and step.topk_indices is self._topk


class TableNumbers:
    """The numbers of a step's block table, in the order of `arguments.TABLE`.

    It is the same for all layers of a compress ratio, and another at each step.
    """

    __slots__ = ("_of", "numbers")

    def __init__(self, table: torch.Tensor | None) -> None:
        """Look at the table; `ArgumentMismatch` when it does not fit."""
        _require(_Look("comp_block_table", table, "int32").table())
        self._of = table
        self.numbers = () if table is None else (table.data_ptr(), table.stride(0))

    def are_of(self, table: torch.Tensor | None) -> bool:
        """Whether these are the numbers of this very tensor."""
        return table is self._of


def require_activations(
    x: torch.Tensor,
    residual: torch.Tensor,
    post_mix: torch.Tensor,
    res_mix: torch.Tensor,
    pre_mix: torch.Tensor,
    *,
    mixes: bool = True,
) -> None:
    """Raise `ArgumentMismatch` unless these are a seam's inputs of as many rows as ``x`` has.

    Args:
        mixes: whether ``post_mix`` and ``res_mix`` are read.
    """
    rows = x.shape[0]
    looks = [
        _Look("x", x, "bfloat16").whole(rows, HIDDEN),
        _Look("residual", residual, "bfloat16").whole(rows, STREAMS, HIDDEN),
        _Look("pre_mix", pre_mix, "float32").elements(rows, STREAMS),
    ]
    if mixes:
        looks += [
            _Look("post_mix", post_mix, "float32").elements(rows, STREAMS),
            _Look("res_mix", res_mix, "float32").elements(rows, STREAMS * STREAMS),
        ]
    _require(*looks)


class _Look:
    """A tensor beside what it has to be; each method is one layout, and gives the problem or None."""

    def __init__(self, name: str, tensor: torch.Tensor | None, dtype: str) -> None:
        self._name, self._tensor, self._dtype = name, tensor, dtype

    def contiguous(self, rows: int) -> str | None:
        """[rows or more]."""
        t = self._tensor
        fits = t is not None and t.dim() == 1 and t.shape[0] >= rows and t.is_contiguous()
        return self._told(fits, f"[{rows} or more], contiguous")

    def whole(self, *shape: int) -> str | None:
        """This shape, contiguous."""
        t = self._tensor
        fits = t is not None and tuple(t.shape) == shape and t.is_contiguous()
        return self._told(fits, f"{list(shape)}, contiguous")

    def elements(self, rows: int, count: int) -> str | None:
        """So many elements in each row, contiguous; engines keep dimensions of one, or do not."""
        t = self._tensor
        fits = t is not None and t.numel() == rows * count and t.is_contiguous()
        return self._told(fits, f"{count} in each of {rows} rows, contiguous")

    def rows_of(self, rows: int, width: int) -> str | None:
        """Rows of ``width``, one behind the other; a dimension of one may lie between."""
        t = self._tensor
        fits = (
            t is not None
            and t.dim() in (2, 3)
            and t.shape[0] >= rows
            and t.shape[-1] == width
            and t.numel() == t.shape[0] * width
            and t.stride(0) == width
            and t.stride(-1) == 1
        )
        return self._told(fits, f"[{rows} or more, {width}], rows without gaps")

    def records(self) -> str | None:
        """[blocks, rows, 584]; only between blocks there may be gaps."""
        t = self._tensor
        fits = (
            t is not None
            and t.dim() == 3
            and t.shape[2] == RECORD
            and t.stride(2) == 1
            and t.stride(1) == RECORD
            and t.stride(0) >= t.shape[1] * RECORD
        )
        return self._told(fits, f"[blocks, rows, {RECORD}], records without gaps")

    def table(self) -> str | None:
        """[requests, blocks]; only between rows there may be gaps."""
        t = self._tensor
        fits = t is not None and t.dim() == 2 and t.stride(1) == 1
        return self._told(fits, "[requests, blocks], no gaps within a row")

    def _told(self, fits: bool, wanted: str) -> str | None:
        t = self._tensor
        if t is None:
            return f"{self._name} is missing; wanted {wanted} {self._dtype}"
        dtype = str(t.dtype).rpartition(".")[2]
        if fits and dtype == self._dtype:
            return None
        layout = f"{list(t.shape)} {dtype} with strides {list(t.stride())}"
        return f"{self._name} is {layout}; wanted {wanted} {self._dtype}"


def _require(*problems: str | None) -> None:
    found: Iterable[str] = [p for p in problems if p]
    if found:
        raise ArgumentMismatch(
            "the step's tensors are not as the kernels read them:\n    " + "\n    ".join(found),
            where="DeepSeek-V4.1 decode step",
            fix="turn mono kernels off, and report the vLLM version: its tensors have changed",
        )
