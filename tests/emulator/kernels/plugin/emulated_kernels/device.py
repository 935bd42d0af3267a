"""The build key of these kernels, and global memory by address."""

from __future__ import annotations

from dataclasses import dataclass

import flydsl.expr as fx
from flydsl.expr.typing import AddressSpace, PointerType

STREAM = fx.Stream(None)
WAVE = 64


@dataclass(frozen=True)
class Build:
    """``block`` work-items a workgroup."""

    block: int


def element(base: object, index: object, kind: type, count: int = 1) -> object:
    """A pointer to element ``index`` of the array of ``kind`` at the address ``base``.

    ``count`` elements can be accessed at once, so the address is a multiple of their size.
    """
    size = kind.width // 8
    place = PointerType.get(kind.ir_type, AddressSpace.Global, size * count)
    return fx.inttoptr(place, base + fx.Int64(index) * size)


def load(base: object, index: object, kind: type, count: int = 1) -> object:
    """``count`` elements from ``index`` on."""
    return fx.generic_load(element(base, index, kind, count), count=count)


def store(base: object, index: object, value: object, kind: type, count: int = 1) -> None:
    """Write ``value`` to ``index``."""
    fx.generic_store(element(base, index, kind, count), value)
