"""Random content from a seed and a purpose: the same on every machine, in any order of making."""

from __future__ import annotations

import hashlib

import numpy
import torch
from torch import Tensor


class Random:
    """Independent streams of random numbers, one for each purpose."""

    def __init__(self, seed: int, *path: object) -> None:
        """``path`` names what this source is for; other paths give independent numbers."""
        self._seed, self._path = seed, path

    def of(self, *more: object) -> Random:
        """The source for a part of this one's purpose."""
        return Random(self._seed, *self._path, *more)

    def generator(self) -> numpy.random.Generator:
        """A fresh generator; every call gives the same stream."""
        name = repr((self._seed, self._path)).encode()
        return numpy.random.Generator(
            numpy.random.PCG64(int.from_bytes(hashlib.sha256(name).digest()[:16], "little"))
        )

    def normal(self, *shape: int, std: float = 1.0) -> Tensor:
        """Normally distributed float32."""
        return torch.from_numpy(self.generator().standard_normal(shape, dtype=numpy.float32)) * std

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Uniformly distributed float32."""
        return (
            torch.from_numpy(self.generator().random(shape, dtype=numpy.float32)) * (high - low)
            + low
        )

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Integers from ``low`` up to, without, ``high`` (int64)."""
        return torch.from_numpy(self.generator().integers(low, high, shape))

    def drawn(self, table: Tensor, *shape: int) -> Tensor:
        """Entries of a table of 65536 bytes, each as likely as another."""
        index = self.generator().integers(0, 65536, shape, dtype=numpy.uint16)
        return torch.from_numpy(table.numpy().take(index))

    def permutation(self, n: int) -> Tensor:
        """The numbers 0 to ``n - 1`` in random order."""
        return torch.from_numpy(self.generator().permutation(n))
