"""Data-parallel primitives: reading a neighbouring lane's register without LDS."""

from __future__ import annotations

from typing import Any

from flydsl.expr import rocdl
from flydsl.expr.typing import T, as_ir_value

__all__ = ["update_dpp_i32"]


def update_dpp_i32(
    old: Any,
    src: Any,
    dpp_ctrl: int,
    row_mask: int = 0xF,
    bank_mask: int = 0xF,
    bound_ctrl: bool = False,
) -> Any:
    """``src`` of the lane that ``dpp_ctrl`` selects, or ``old`` where the masks switch a lane off.

    Args:
        dpp_ctrl: the DPP control of the CDNA ISA documents, "DPP".
        row_mask, bank_mask: one bit for each row of 16 lanes and each bank of 4.
        bound_ctrl: lanes whose source does not exist read 0 instead of keeping ``old``.
    """
    return rocdl.update_dpp(
        T.i32, as_ir_value(old), as_ir_value(src), dpp_ctrl, row_mask, bank_mask, bound_ctrl
    )
