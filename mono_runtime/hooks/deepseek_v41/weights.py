"""One layer's weights on one rank, by the launches' argument names, and what they have to look like.

The kernels take addresses and read without bounds: a tensor of another shape or type would be read as
garbage, not refused. So every tensor is compared with a table before its address is used, and one error
names all that differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

from mono_runtime.errors import InvalidValue

# Widths of the model: DeepSeek-V4.1's configuration as vLLM 0.33.0's kernels have it
# (deepseek_v41/amd/mono: attention/plan.py, stages/dims.py).
HIDDEN = 5120
STREAMS = 4
MIXES = 24  # post 4, residual 16, pre 4
Q_RANK = 1280
HEAD_DIM = 512
HEADS = 64
O_GROUPS = 8
O_RANK = 1024
GROUP_WIDTH = HEADS // O_GROUPS * HEAD_DIM
ROPE_DIM = 64
INTER = 2304  # a routed expert's, and the shared expert's
# What vLLM's loader pads a rank's share of a routed expert to, and AITER a scale row.
INTER_PAD = 128
SCALE_PAD = 8
# gfx942's GEMV takes this many K at once; its copies are padded to it.
K_STEP = 128
BLOCK = 32  # rows and columns of an E8M0 code


class Tensor(Protocol):
    """What is asked of a weight here; torch's tensors have it."""

    @property
    def shape(self) -> Sequence[int]:
        """Sizes of the dimensions."""

    @property
    def dtype(self) -> object:
        """Its element type; its text ends with the type's name (``torch.bfloat16``)."""

    def is_contiguous(self) -> bool:
        """Whether the elements follow each other in row-major order."""

    def data_ptr(self) -> int:
        """The address of the first element."""


class WeightsMismatch(InvalidValue):
    """Weights are not as the kernels read them; nothing was launched with them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What decides how the weights of a layer look.

    Attributes:
        arch: ``gfx950`` reads vLLM's own tensors, ``gfx942`` reads copies of its own (`weights_gfx942`).
        tp: ranks that share the layer, 2 or 4.
        experts: routed experts of the layer: the model's 384, or the draft's.
        whole: whether the attention is the kernels' too, or the FFN launch alone.
    """

    arch: str
    tp: int
    experts: int
    whole: bool = True

    def __post_init__(self) -> None:
        if self.tp not in (2, 4) or self.experts < 1:
            raise InvalidValue(
                f"no kernel takes weights of {self.experts} experts at TP {self.tp}",
                fix="TP is 2 or 4, and there is at least one expert",
            )

    @property
    def gfx942(self) -> bool:
        """Whether the weights are gfx942's own copies."""
        return self.arch.startswith("gfx942")

    @property
    def inter(self) -> int:
        """A routed expert's width on a rank, without padding."""
        return INTER // self.tp

    @property
    def padded_inter(self) -> int:
        """The same as vLLM's loader pads it."""
        return _round_up(self.inter, INTER_PAD)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a tensor has to be: contiguous, of this shape and type.

    Attributes:
        shape: sizes of the dimensions.
        dtype: the type's name in torch.
        more: whether the first dimension may be larger; the kernels then read the first rows.
    """

    shape: tuple[int, ...]
    dtype: str
    more: bool = False

    def __str__(self) -> str:
        return (
            f"{_sizes(self.shape)}{' or more rows' if self.more else ''} {self.dtype}, contiguous"
        )

    def takes(self, tensor: Tensor) -> bool:
        """Whether ``tensor`` is that."""
        shape = tuple(tensor.shape)
        if self.more and len(shape) == len(self.shape) and shape[0] > self.shape[0]:
            shape = (self.shape[0], *shape[1:])
        return shape == self.shape and _type(tensor) == self.dtype and tensor.is_contiguous()


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """What the attention half reads: K1's weights, and those of K2 up to its seam.

    Fields are the launches' arguments. e4m3 below is ``float8_e4m3fn`` on gfx950 and the bytes of
    gfx942's copies there; scales are E8M0 codes as bytes, one for 32 x 32 weights. ``heads`` and
    ``groups`` are the rank's share of 64 and 8.
    """

    hc_fn: Tensor  # [24, 20480] float32: the attention seam's
    hc_scale: Tensor  # [3] float32
    hc_base: Tensor  # [24] float32
    attn_w: Tensor  # [5120] bfloat16: the norm before the attention
    wqkv: Tensor  # [1792, 5120] e4m3: the query's low rank, then the KV row
    wqkv_s: Tensor  # [56, 160]
    qn_w: Tensor  # [1280] bfloat16
    kvn_w: Tensor  # [512] bfloat16
    wqb: Tensor  # [heads 512, 1280] e4m3
    wqb_s: Tensor  # [heads 16, 40]
    cos_sin: Tensor  # [positions, 64] float32: the layer's rotary table
    sink: Tensor  # [heads or more] float32
    woa: Tensor  # [groups 1024, 4096] e4m3
    woa_s: Tensor  # [groups 32, 128]
    wob: Tensor  # [5120, groups 1024] e4m3
    wob_s: Tensor  # [160, groups 32]


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """What the launches of a layer read, on one rank.

    The fields after ``attention`` are arguments of K2 and of the FFN launch. E is the routed experts; I
    a routed expert's width on the rank, as padded by vLLM on gfx950 and as it is on gfx942; S the shared
    expert's, never padded; K its K padded to a multiple of 128 on gfx942, S on gfx950.
    """

    layer: int
    ratio: int  # the layer's compress ratio: 0, 1 or 2
    attention: AttentionWeights | None  # None where vLLM runs the attention
    hc_fn: Tensor  # [24, 20480] float32: the FFN seam's
    hc_scale: Tensor  # [3] float32
    hc_base: Tensor  # [24] float32
    ffn_w: Tensor  # [5120] bfloat16: the norm before the experts
    gate_w: Tensor  # [E, 5120] bfloat16
    bias: Tensor  # [E] float32: the router's correction
    w13: Tensor  # [E, 2 I, 2560] two E2M1 a byte
    w13_s: Tensor  # its codes: [E 2 I, 160] (gfx942: [E, 2 I, 160])
    w2: Tensor  # [E, 5120, I / 2]
    w2_s: Tensor  # [E 5120, I / 32 padded to 8] (gfx942: [E, 5120, I / 32])
    sgu: Tensor  # [2 S, 5120] e4m3: gate rows, then up rows
    sgu_s: Tensor  # [2 S / 32, 160]
    sw2: Tensor  # [5120, K] e4m3
    sw2_s: Tensor  # [160, K / 32]

    def arguments(self, launch: str) -> dict[str, Tensor]:
        """The weights that ``launch`` (``k1``, ``k2`` or ``ffn``) takes, by its arguments' names."""
        if launch == "ffn":
            return dict(_tensors(self))
        if launch not in _ATTENTION_ARGUMENTS:
            raise InvalidValue(f"{launch} reads no weights", fix="ask for k1, k2 or ffn")
        if self.attention is None:
            raise InvalidValue(
                f"layer {self.layer} has no attention weights for {launch}",
                fix="launch its FFN alone, or take the weights of the whole layer",
            )
        mine = {name: getattr(self.attention, name) for name in _ATTENTION_ARGUMENTS[launch]}
        return mine if launch == "k1" else {**mine, **dict(_tensors(self))}


_ATTENTION_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "k1": (
        *("hc_fn", "hc_scale", "hc_base", "attn_w", "wqkv", "wqkv_s", "qn_w", "kvn_w"),
        *("wqb", "wqb_s", "cos_sin"),
    ),
    "k2": ("cos_sin", "sink", "woa", "woa_s", "wob", "wob_s"),
}


def attention_table(layout: Layout) -> dict[str, Wanted]:
    """By argument, what the attention's tensors have to be."""
    heads, groups = HEADS // layout.tp, O_GROUPS // layout.tp
    return {
        **_seam_table(),
        "attn_w": Wanted((HIDDEN,), "bfloat16"),
        # Every K here is a multiple of 128, so gfx942's copies have the same shapes.
        **_dense("wqkv", Q_RANK + HEAD_DIM, HIDDEN, layout),
        "qn_w": Wanted((Q_RANK,), "bfloat16"),
        "kvn_w": Wanted((HEAD_DIM,), "bfloat16"),
        **_dense("wqb", heads * HEAD_DIM, Q_RANK, layout),
        "cos_sin": Wanted((1, ROPE_DIM), "float32", more=True),
        "sink": Wanted((heads,), "float32", more=True),
        **_dense("woa", groups * O_RANK, GROUP_WIDTH, layout),
        **_dense("wob", HIDDEN, groups * O_RANK, layout),
    }


def ffn_table(layout: Layout) -> dict[str, Wanted]:
    """By argument, what the tensors of K2's second half and of the FFN launch have to be."""
    experts, shared = layout.experts, INTER // layout.tp
    return {
        **_seam_table(),
        "ffn_w": Wanted((HIDDEN,), "bfloat16"),
        "gate_w": Wanted((experts, HIDDEN), "bfloat16"),
        "bias": Wanted((experts,), "float32"),
        **_experts(layout),
        **_dense("sgu", 2 * shared, HIDDEN, layout),
        **_dense("sw2", HIDDEN, shared, layout),
    }


def problems(weights: LayerWeights, layout: Layout) -> tuple[str, ...]:
    """Every tensor that the kernels could not read, a line each: name, what it is, what it has to be."""
    if layout.whole != (weights.attention is not None):
        there = "no attention weights" if layout.whole else "attention weights that nothing reads"
        return (there,)
    found: list[str] = []
    if weights.attention is not None:
        found += _differing("attention", weights.attention, attention_table(layout))
    return (*found, *_differing("ffn", weights, ffn_table(layout)))


def check(weights: LayerWeights, layout: Layout) -> None:
    """Raise `WeightsMismatch` that lists every tensor which is not as `attention_table` and `ffn_table` say."""
    found = problems(weights, layout)
    if found:
        raise WeightsMismatch(
            f"{len(found)} of the weights of layer {weights.layer} are not as the {layout.arch} kernels "
            f"read them at TP {layout.tp}:\n    " + "\n    ".join(found),
            where=f"layer {weights.layer}",
            fix="serve the released DeepSeek-V4.1 checkpoint, without another quantisation, or turn mono "
            "kernels off",
        )


def _seam_table() -> dict[str, Wanted]:
    return {
        "hc_fn": Wanted((MIXES, STREAMS * HIDDEN), "float32"),
        "hc_scale": Wanted((3,), "float32"),
        "hc_base": Wanted((MIXES,), "float32"),
    }


def _dense(name: str, rows: int, k: int, layout: Layout) -> dict[str, Wanted]:
    k = _round_up(k, K_STEP) if layout.gfx942 else k
    return {
        name: Wanted((rows, k), "uint8" if layout.gfx942 else "float8_e4m3fn"),
        f"{name}_s": Wanted((rows // BLOCK, k // BLOCK), "uint8"),
    }


def _experts(layout: Layout) -> dict[str, Wanted]:
    experts, blocks = layout.experts, HIDDEN // BLOCK
    if layout.gfx942:
        inter = layout.inter
        return {
            "w13": Wanted((experts, 2 * inter, HIDDEN // 2), "uint8"),
            "w13_s": Wanted((experts, 2 * inter, blocks), "uint8"),
            "w2": Wanted((experts, HIDDEN, inter // 2), "uint8"),
            "w2_s": Wanted((experts, HIDDEN, inter // BLOCK), "uint8"),
        }
    inter = layout.padded_inter
    columns = _round_up(inter // BLOCK, SCALE_PAD)
    return {
        "w13": Wanted((experts, 2 * inter, HIDDEN // 2), "float4_e2m1fn_x2"),
        "w13_s": Wanted((experts * 2 * inter, blocks), "uint8"),
        "w2": Wanted((experts, HIDDEN, inter // 2), "float4_e2m1fn_x2"),
        "w2_s": Wanted((experts * HIDDEN, columns), "uint8"),
    }


def _differing(half: str, owner: object, table: Mapping[str, Wanted]) -> Iterator[str]:
    for name, wanted in table.items():
        tensor: Tensor = getattr(owner, name)
        if not wanted.takes(tensor):
            laid = "contiguous" if tensor.is_contiguous() else "not contiguous"
            yield f"{half} {name} is {_sizes(tensor.shape)} {_type(tensor)}, {laid}; wanted {wanted}"


def _tensors(weights: LayerWeights) -> Iterator[tuple[str, Tensor]]:
    for field in fields(weights):
        if field.name not in ("layer", "ratio", "attention"):
            yield field.name, getattr(weights, field.name)


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).rpartition(".")[2]


def _sizes(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
