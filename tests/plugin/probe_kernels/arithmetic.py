"""What the probe kernels compute: a helper that their direct keys must see."""

from __future__ import annotations

import flydsl.expr as fx


def combined(a: object, b: object, scale: object) -> object:
    """``a + scale * b``."""
    return a + fx.Float32(scale) * b
