"""The launch's key and factory."""

from dataclasses import dataclass
from enum import Enum

compiled = []


class Experts(Enum):
    ALL = "all"
    SHARED = "shared"
    ROUTED = "routed"


@dataclass(frozen=True)
class FfnBuild:
    tokens: int
    tp: int = 4
    experts: Experts = Experts.ALL
    timeline: bool = False
    drop_mark: int = -1
    wait_ticks: int = 1_000_000_000


def build_ffn(key):
    compiled.append(key)
    return "a launcher"
