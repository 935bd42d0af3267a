"""K1's key and factory."""

from dataclasses import dataclass

compiled = []


@dataclass(frozen=True)
class KdaPreBuild:
    tokens: int
    qlen: int
    nblocks: int
    delta: bool
    state_len: int
    eps: float = 1e-5
    out_eps: float = 1e-5
    onorm_eps: float = 1e-5
    lower_bound: float = -5.0
    write_idx: int = -1
    kda0: int = 0


def build(key):
    compiled.append(key)
    return lambda *arguments, stream=None: None


def kda_pre(key):
    build(key)(1, 2, key.tokens, stream=None)
