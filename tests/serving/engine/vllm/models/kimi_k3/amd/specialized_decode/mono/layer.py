"""K2's key and factory."""

from dataclasses import dataclass

compiled = []


@dataclass(frozen=True)
class K2Build:
    tokens: int
    nblocks: int
    eps: float = 1e-5
    out_eps: float = 1e-5
    ln_eps: float = 1e-5
    reduce: bool = True
    reset: bool = False
    fault_rank: int = -1
    fault_epoch: int = 0
    fault_layer: int = 0
    fault_ticks: int = 0


def build(key):
    compiled.append(key)
    return lambda *arguments, stream=None: None


def k2_launch(key):
    build(key)(1, 2, key.tokens, stream=None)
