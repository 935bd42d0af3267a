"""DeepSeek-V4.1-Flash: the model's widths, and a tensor-parallel rank's share of them.

Widths from the model's published configuration; where a kernel's own constant matters (the chunk of
keys that a workgroup attends to, the padding of an expert's width), it is that of vLLM 0.33.0.
"""

from __future__ import annotations

from dataclasses import dataclass

HIDDEN = 5120
STREAMS = 4  # residual streams of the hyper-connections
MIXES = STREAMS * (STREAMS + 2)  # pre 4, post 4, comb 16
SINKHORN_STEPS = 20
EPS = 1e-20  # of every RMS norm
MIX_EPS = 1e-6

Q_RANK = 1280
HEAD_DIM = 512
ROPE_DIM = 64
NOPE_DIM = HEAD_DIM - ROPE_DIM
HEADS = 64
O_GROUPS = 8
O_RANK = 1024
WINDOW = 128
TOPK_KEYS = 512
KEYS = TOPK_KEYS + WINDOW
COMPRESSED = -(2**31)  # bit 31 of a key: a row of the compressed cache

RECORD_DATA = 576  # bytes of a token's values in the KV cache: 448 E4M3 and 64 bfloat16
RECORD_SCALES = 8  # 7 E8M0 codes and a byte that nobody reads
RECORD = RECORD_DATA + RECORD_SCALES
RECORD_GROUP = 64

INTER = 2304  # intermediate width of a routed expert, and of the shared one
ROUTED_SCALE = 1.5
SWIGLU_LIMIT = 10.0


@dataclass(frozen=True, slots=True)
class Shard:
    """One rank's share at tensor-parallel size ``tp``."""

    tp: int

    @property
    def heads(self) -> int:
        """Attention heads."""
        return HEADS // self.tp

    @property
    def groups(self) -> int:
        """Output groups (8 heads each)."""
        return O_GROUPS // self.tp

    @property
    def group_width(self) -> int:
        """Width of an output group's input."""
        return self.heads // self.groups * HEAD_DIM

    @property
    def inter(self) -> int:
        """Intermediate width of an expert."""
        return INTER // self.tp

    @property
    def inter_padded(self) -> int:
        """The same, padded as vLLM's loader pads it for gfx950."""
        return -(-self.inter // 128) * 128


def chunk_keys(arch: str, tp: int, tokens: int) -> int:
    """Keys whose softmax a workgroup computes at once: 64 or 128.

    128 when a rank's heads are one wave's worth (16) or the step is too wide to spread over the GPU.
    """
    if arch.startswith("gfx942"):
        return 64
    return 64 if Shard(tp).heads == 32 and tokens * (KEYS // 64) <= 256 else 128
