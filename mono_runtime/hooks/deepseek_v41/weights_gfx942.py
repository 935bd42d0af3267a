"""gfx942's own copies of a layer's weights, made from what vLLM has loaded.

gfx942 has no scaled matrix instruction and its FP8 is FNUZ, so its kernels read weights in an order and
a coding of their own:

*Dense MXFP8.* A byte keeps its bits, which in FNUZ stand for half the value, and the scale code goes up
by one. OCP's -0 (0x80) is FNUZ's NaN and becomes 0. Scales are one code for 32 x 32 weights. K is padded
with zeros to a multiple of 128. A tile is 16 rows by 128 K, stored together: first the half of K 0 to
63, then the other; within a half the four 8-byte columns of each 32 K in turn, and of each column row by
row the two 8-byte pieces of the half's two blocks.

*Routed experts, MXFP4.* Gate and up rows alternate, without the loader's padding, and -0 (a nibble of 8)
becomes +0, because the kernels widen nibbles to FNUZ bytes. A tile is 16 rows by 128 K, 64 bytes of a
row: of each of the four 4-byte columns of a block row by row the four blocks' pieces. What is left at
the end of a row is 32 bytes, two blocks, in the same order. The codes of gate and up are stored tile by
tile of 16 rows, 8 codes of a row at a time; those of down as they are.

The work is done on the tensors' device in pieces, so that beside the copies at most some
`PEAK_BYTES` are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from mono_runtime.errors import InvalidValue
from mono_runtime.hooks.deepseek_v41.weights import BLOCK, K_STEP

if TYPE_CHECKING:
    from torch import Tensor

# Elements that are worked on at once. A dense piece takes up to 16 bytes an element, in float32
# (weights, quotients, their FP8 values and what is compared); FP4 takes 3 bytes a byte.
PIECE = 8 << 20
PEAK_BYTES = 16 * PIECE

TILE_ROWS = 16
# A scale code above this would overflow the factor that the kernels make of two codes.
LARGEST_CODE = 249
# FNUZ code of a block of padding: 2^0, and its weights are zeros.
PADDING_CODE = 128
NEGATIVE_ZERO = 0x80
FP4_STEP = 64  # bytes of a row in a tile
CODE_ROUND = 8


class CopyRefused(InvalidValue):
    """Loaded weights cannot be copied for gfx942 exactly; copies that were made before are as they were."""


@dataclass(frozen=True, slots=True)
class LinearCopy:
    """A dense matrix: FNUZ bytes [N, K padded to 128] and codes [N / 32, the same K / 32], uint8."""

    codes: Tensor
    scales: Tensor


@dataclass(frozen=True, slots=True)
class ExpertCopies:
    """The routed experts of a layer on a rank, uint8, for E experts of width I.

    Attributes:
        w13: gate row 0, up row 0, gate row 1 ... in the order of tiles [E, 2 I, 2560].
        w13_s: their codes in rounds [E, 2 I, 160].
        w2: the down rows in the order of tiles [E, 5120, I / 2].
        w2_s: their codes, row by row [E, 5120, I / 32].
    """

    w13: Tensor
    w13_s: Tensor
    w2: Tensor
    w2_s: Tensor


def copy_linear(weight: Tensor, scale: Tensor, into: LinearCopy | None = None) -> LinearCopy:
    """The copy of a dense MXFP8 matrix, in new memory or in that of ``into``.

    Args:
        weight: [N, K], ``float8_e4m3fn`` or the bfloat16 that vLLM dequantised it to, of which the bytes
            are recovered.
        scale: E8M0 codes as bytes or ``float8_e8m0fnu``: one for 32 x 32 weights [N / 32, K / 32], or
            repeated for each row [N, K / 32].
        into: a copy to write anew, at its addresses. It is written after everything was checked.

    Raises:
        CopyRefused: values that are no product of an e4m3 number and their scale, rows of a block whose
            codes differ, codes beyond 249, another shape or type than the tables have, or than ``into``.
    """
    import torch

    weight = weight.detach()
    codes = _block_codes(weight, _bytes(scale))
    rows, k = weight.shape
    padded = -(-k // K_STEP) * K_STEP
    copied = torch.zeros(rows, padded, dtype=torch.uint8, device=weight.device)
    # [tile row step half block column byte] to [tile step half column row block byte]
    order = (0, 2, 3, 5, 1, 4, 6)
    tiled = copied.view(rows // TILE_ROWS, padded // K_STEP, 2, 4, TILE_ROWS, 2, 8)
    step = max(1, PIECE // (BLOCK * k)) * BLOCK
    for first in range(0, rows, step):
        rest = slice(first, min(first + step, rows))
        piece = _padded_columns(_e4m3_bytes(weight[rest], codes, first), padded)
        piece.masked_fill_(piece == NEGATIVE_ZERO, 0)
        parts = piece.view(-1, TILE_ROWS, padded // K_STEP, 2, 2, 4, 8)
        tiled[first // TILE_ROWS : rest.stop // TILE_ROWS].copy_(parts.permute(order))
    scales = codes.new_full((rows // BLOCK, padded // BLOCK), PADDING_CODE)
    scales[:, : k // BLOCK] = codes + 1
    return _kept(LinearCopy(copied, scales), into)


def copy_experts(
    w13: Tensor,
    w13_s: Tensor,
    w2: Tensor,
    w2_s: Tensor,
    inter: int,
    into: ExpertCopies | None = None,
) -> ExpertCopies:
    """The copies of a layer's routed experts, in new memory or in that of ``into``.

    The padding that vLLM's loader adds is left out. For new copies it has to be zeros, which shows that
    ``inter`` is the width that was loaded. A reload leaves in it what memory held, and it is not read.

    Args:
        w13: gate rows, then up rows, both padded from ``inter`` [E, 2 P, K / 2], two E2M1 a byte.
        w13_s: their E8M0 codes [E, 2 P, K / 32].
        w2: [E, H, P / 2].
        w2_s: [E, H, P / 32].
        inter: an expert's width on this rank.
        into: copies to write anew, at their addresses, after everything was checked.

    Raises:
        CopyRefused: shapes that do not fit each other or ``into``, or padding that holds weights.
    """
    import torch

    sources = ExpertCopies(*(_bytes(t) for t in (w13, w13_s, w2, w2_s)))
    _check_experts(sources, inter)
    experts, hidden = w2.shape[:2]
    shapes = (
        (experts, 2 * inter, w13.shape[2]),
        (experts, 2 * inter, w13_s.shape[2]),
        (experts, hidden, inter // 2),
        (experts, hidden, inter // BLOCK),
    )
    if into is None:
        _check_padding(sources, inter)
        into = ExpertCopies(
            *(torch.empty(shape, dtype=torch.uint8, device=w13.device) for shape in shapes)
        )
    _check_same(into, shapes, w13)
    for some in _pieces(experts, sources.w13[0].numel()):
        _write_fp4(into.w13[some], _alternating(sources.w13[some], inter))
        _write_rounds(into.w13_s[some], _alternating(sources.w13_s[some], inter))
        _write_fp4(into.w2[some], sources.w2[some, :, : inter // 2].clone())
        into.w2_s[some].copy_(sources.w2_s[some, :, : inter // BLOCK])
    return into


# ---- dense ----


def _block_codes(weight: Tensor, scale: Tensor) -> Tensor:
    """One code for 32 x 32 weights [N / 32, K / 32]."""
    if weight.dim() != 2 or any(size % BLOCK for size in weight.shape):
        raise CopyRefused(
            f"a dense weight is {tuple(weight.shape)}, which is not blocks of 32 x 32"
        )
    rows, k = weight.shape
    if tuple(scale.shape) == (rows, k // BLOCK):
        blocks = scale.view(rows // BLOCK, BLOCK, k // BLOCK)
        scale = blocks[:, 0]
        if not bool((blocks == scale[:, None]).all()):
            raise CopyRefused(
                f"the scales of a dense weight {tuple(weight.shape)} differ between the rows of a block",
                fix="gfx942's kernels need one scale for 32 x 32 weights, as the released checkpoint has",
            )
    if tuple(scale.shape) != (rows // BLOCK, k // BLOCK):
        raise CopyRefused(
            f"the scales of a dense weight {tuple(weight.shape)} are {tuple(scale.shape)}",
            fix=f"they have to be {(rows // BLOCK, k // BLOCK)}, or {(rows, k // BLOCK)} for each row",
        )
    if int(scale.max()) > LARGEST_CODE:
        raise CopyRefused(
            f"a scale of a dense weight has code {int(scale.max())}, and the kernels' products overflow "
            f"above {LARGEST_CODE}",
            fix="check the checkpoint: a weight's scale is far below 2^122",
        )
    return scale.contiguous()


def _e4m3_bytes(piece: Tensor, codes: Tensor, first: int) -> Tensor:
    """The OCP e4m3 bytes of some rows of a weight, which begin with row ``first``."""
    import torch

    if piece.dtype == torch.float8_e4m3fn:
        data = piece.view(torch.uint8)
        _refuse(int(((data & 0x7F) == 0x7F).count_nonzero()), piece)
        return data
    if piece.dtype != torch.bfloat16:
        raise CopyRefused(
            f"a dense weight is {piece.dtype}",
            fix="gfx942's copies are made of float8_e4m3fn, or of the bfloat16 that vLLM makes of it",
        )
    mine = codes[first // BLOCK : (first + len(piece)) // BLOCK].to(torch.int32)
    # The bits of 2^(127 - code), so that the quotient is exact on every device.
    factor = ((254 - mine) << 23).view(torch.float32)
    quotients = piece.float().view(len(piece) // BLOCK, BLOCK, -1, BLOCK)
    quotients.mul_(factor[:, None, :, None])
    found = quotients.to(torch.float8_e4m3fn)
    _refuse(int((found.float() != quotients).count_nonzero()), piece)
    return found.view(torch.uint8).view(piece.shape)


def _refuse(wrong: int, piece: Tensor) -> None:
    if wrong:
        raise CopyRefused(
            f"{wrong} of {piece.numel()} values of a dense weight are no e4m3 number times their scale",
            fix="serve a checkpoint whose dense weights are MXFP8, and let vLLM load them unchanged",
        )


def _padded_columns(piece: Tensor, columns: int) -> Tensor:
    """A copy of ``piece`` with zeros on the right."""
    padded = piece.new_zeros(len(piece), columns)
    padded[:, : piece.shape[1]] = piece
    return padded


def _kept(made: LinearCopy, into: LinearCopy | None) -> LinearCopy:
    """What was made, or ``into`` with its contents."""
    if into is None:
        return made
    _check_same(into, (tuple(made.codes.shape), tuple(made.scales.shape)), made.codes)
    into.codes.copy_(made.codes)
    into.scales.copy_(made.scales)
    return into


# ---- experts ----


def _check_experts(sources: ExpertCopies, inter: int) -> None:
    w13, w13_s, w2, w2_s = (getattr(sources, field.name) for field in fields(sources))
    fits = all(t.dim() == 3 for t in (w13, w13_s, w2, w2_s))
    if fits:
        experts, rows, k = w13.shape[0], w13.shape[1], 2 * w13.shape[2]
        padded = rows // 2
        fits = (
            0 < inter <= padded
            and rows % 2 == 0
            and k % (CODE_ROUND * BLOCK) == 0
            and inter % FP4_STEP == 0
            and w2.shape[1] % TILE_ROWS == 0
            and tuple(w13_s.shape) == (experts, rows, k // BLOCK)
            and tuple(w2.shape) == (experts, w2.shape[1], padded // 2)
            and tuple(w2_s.shape) == (experts, w2.shape[1], padded // BLOCK)
        )
    if not fits:
        shapes = ", ".join(
            f"{f.name} {tuple(getattr(sources, f.name).shape)}" for f in fields(sources)
        )
        raise CopyRefused(
            f"the routed experts are no MXFP4 experts of width {inter}: {shapes}",
            fix="the copies are made of what vLLM loads, before it converts the experts for its own kernels",
        )


def _check_padding(sources: ExpertCopies, inter: int) -> None:
    padded = sources.w13.shape[1] // 2
    parts = (
        sources.w13[:, inter:padded],
        sources.w13[:, padded + inter :],
        sources.w2[:, :, inter // 2 :],
    )
    if any(part.numel() and bool(part.any()) for part in parts):
        raise CopyRefused(
            f"the routed experts hold weights beyond width {inter}, where padding is expected",
            fix="serve the released DeepSeek-V4.1 checkpoint, or turn mono kernels off",
        )


def _pieces(experts: int, size: int) -> Iterator[slice]:
    step = max(1, PIECE // size)
    for first in range(0, experts, step):
        yield slice(first, min(first + step, experts))


def _alternating(source: Tensor, inter: int) -> Tensor:
    """Gate row 0, up row 0, gate row 1 ...: a copy [experts, 2 inter, columns]."""
    experts, rows, columns = source.shape
    halves = source.view(experts, 2, rows // 2, columns)[:, :, :inter]
    return halves.transpose(1, 2).reshape(experts, 2 * inter, columns)


def _write_fp4(out: Tensor, packed: Tensor) -> None:
    """Store FP4 rows, which are changed on the way, in the order of tiles and without -0."""
    _drop_negative_zero(packed)
    width = packed.shape[-1]
    full = width // FP4_STEP * FP4_STEP
    tiles = packed.view(-1, TILE_ROWS, width)
    stored = out.view(-1, TILE_ROWS * width)
    for first, size, blocks in ((0, full, 4), (full, width - full, 2)):
        if not size:
            continue
        steps = size // (16 * blocks)
        # [tile row step block column byte] to [tile step column row block byte]
        parts = tiles[..., first : first + size]
        parts = parts.view(len(tiles), TILE_ROWS, steps, blocks, 4, 4)
        place = stored[:, TILE_ROWS * first : TILE_ROWS * (first + size)]
        place = place.view(len(tiles), steps, 4, TILE_ROWS, blocks, 4)
        place.copy_(parts.permute(0, 2, 4, 1, 3, 5))


def _drop_negative_zero(packed: Tensor) -> None:
    # A magnitude plus 7 reaches the nibble's sign bit exactly when it is not zero, and goes no further.
    keep = packed & 0x77
    keep += 0x77
    keep &= 0x88
    keep |= 0x77
    packed &= keep


def _write_rounds(out: Tensor, codes: Tensor) -> None:
    columns = codes.shape[-1]
    # [tile row round code] to [tile round row code]
    parts = codes.view(-1, TILE_ROWS, columns // CODE_ROUND, CODE_ROUND)
    out.view(-1, columns // CODE_ROUND, TILE_ROWS, CODE_ROUND).copy_(parts.transpose(1, 2))


# ---- both ----


def _bytes(tensor: Tensor) -> Tensor:
    import torch

    tensor = tensor.detach()
    if tensor.dtype == torch.uint8:
        return tensor
    if tensor.element_size() != 1:
        raise CopyRefused(f"{tensor.dtype} where bytes of MXFP4 or E8M0 are expected")
    return tensor.view(torch.uint8)


def _check_same(
    into: LinearCopy | ExpertCopies, shapes: tuple[tuple[int, ...], ...], source: Tensor
) -> None:
    kept = [getattr(into, field.name) for field in fields(into)]
    found = [tuple(t.shape) for t in kept]
    if found != list(shapes) or kept[0].device != source.device:
        raise CopyRefused(
            f"a reload changes the weights from {found} on {kept[0].device} to {list(shapes)} on "
            f"{source.device}, and captured graphs read the first ones",
            fix="restart the server to serve weights of other shapes",
        )
