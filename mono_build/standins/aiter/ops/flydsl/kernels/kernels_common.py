"""Names of kernels."""

from __future__ import annotations

__all__ = ["kernel_signature"]


def kernel_signature(**params: object) -> str:
    """The build's parameters as the tail of a kernel symbol: ``s8_tp4_r2_tl0_f1_i0``.

    Truth values are written 0 and 1. The assembler takes a hyphen for an operator, so that of a
    negative number becomes an underscore.
    """
    return "_".join(f"{name}{_text(value)}" for name, value in params.items())


def _text(value: object) -> str:
    return str(int(value) if isinstance(value, bool) else value).replace("-", "_")
