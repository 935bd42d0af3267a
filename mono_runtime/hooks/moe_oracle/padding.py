"""Zeroing what a backend's rounding added to the experts' weights, which no checkpoint fills."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mono_runtime.errors import InvalidValue

if TYPE_CHECKING:
    import torch


def zero_padding(
    w13: torch.Tensor, w2: torch.Tensor, *, filled: int, allocated: int, gated: bool
) -> None:
    """Zero the padding of the intermediate size in place, in both weights of all experts.

    Weights are allocated without a value, and a reload writes the checkpoint's part alone, so this is
    due after every load and every reload, before the weights take the layout of a backend. What is in
    the padding would be multiplied into the result, and NaN survives a multiplication with zero.

    Args:
        w13: ``[experts, 2 * allocated, hidden]``, the gates' rows before the up projections'; without a
            gate ``[experts, allocated, hidden]``.
        w2: ``[experts, hidden, allocated]``.
        filled: intermediate size of this rank, as the checkpoint has it.
        allocated: the same, rounded up for the backend.
        gated: whether ``w13`` has gates.

    Raises:
        InvalidValue: a weight has another shape, or is smaller than what the checkpoint fills.
    """
    if not 0 < filled <= allocated:
        raise InvalidValue(
            f"a checkpoint fills {filled} of an allocated intermediate size of {allocated}",
            fix="allocate what round_up_sizes gives for the size of one rank",
        )
    halves = 2 if gated else 1
    expected = {"w13": (w13, 1, halves * allocated), "w2": (w2, 2, allocated)}
    for name, (weight, dim, size) in expected.items():
        if len(weight.shape) != 3 or weight.shape[dim] != size:
            raise InvalidValue(
                f"{name} has the shape {list(weight.shape)}, not {size} in dimension {dim}",
                fix="zero the padding before the weights take the layout of a backend",
            )
    if filled == allocated:
        return
    for half in range(halves):
        w13[:, half * allocated + filled : (half + 1) * allocated].zero_()
    w2[:, :, filled:].zero_()
