"""A build of a V4.1 launch, as its build key states it, and what follows from it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from mono_build.emulator.references.deepseek_v41.geometry import Shard, chunk_keys


@dataclass(frozen=True, slots=True)
class Build:
    """The build key's fields (`mono_runtime.families.deepseek_v41`)."""

    tokens: int
    tp: int
    ratio: int = 0
    fold: bool = True
    index: bool = False
    experts: int = 384
    topk: int = 6
    ug_groups: int = 2
    swa_width: int = 128
    timeline: bool = False

    def key(self) -> dict[str, int | bool]:
        """The launch key's build fields."""
        return asdict(self)

    @property
    def shard(self) -> Shard:
        """The rank's share of the widths."""
        return Shard(self.tp)


@dataclass(frozen=True, slots=True)
class Target:
    """A build for an architecture, and the state that the launches find.

    Attributes:
        epoch: how many launch pairs ran before; odd ones use the other half of peer memory.
        stale: the byte that scratch and peer memory hold before. vLLM begins with zeros, and later steps
            find what earlier ones left; 0x7F is NaN in E4M3 and never a tag.
        edge: which of the positions at edges (`inputs.EDGES`) the first request is at.
    """

    build: Build
    arch: str
    epoch: int = 0
    stale: int = 0
    edge: int = 0

    @property
    def gfx942(self) -> bool:
        """Whether FP8 is FNUZ and the weights are gfx942's own copies."""
        return self.arch.startswith("gfx942")

    @property
    def chunk(self) -> int:
        """Keys of an attention chunk."""
        return chunk_keys(self.arch, self.build.tp, self.build.tokens)

    @property
    def tile(self) -> int:
        """Tokens (or picks) that a pass over the weights takes."""
        return 6 if self.gfx942 else 16

    @property
    def inter(self) -> int:
        """A routed expert's width in this architecture's copy of the weights."""
        return self.build.shard.inter if self.gfx942 else self.build.shard.inter_padded
