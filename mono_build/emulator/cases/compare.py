"""Comparing what a launch left with a reference, in units of the output's format."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mono_build.emulator.references.bounded import Bounded, unit, unit_f32


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output against its reference.

    Attributes:
        name: the output, with its rank.
        format: what ``error`` and ``tolerance`` are counted in.
        elements: how many were compared; ``differing`` of them are not equal to the reference.
        error: the largest difference, in units of the format at the reference's value or at the root mean
            square of its row, whichever is larger: a sum that happens to cancel has no finer errors.
        tolerance: what was allowed where that difference is.
        excess: the largest ``difference / tolerance`` of all (0 when all are equal); at most 1 passes.
        where: index of the element with the largest excess.
    """

    name: str
    format: str
    elements: int
    differing: int
    error: float
    tolerance: float
    excess: float
    where: tuple[int, ...]

    @property
    def passed(self) -> bool:
        """Whether every element lies within its tolerance."""
        return self.excess <= 1.0

    def __str__(self) -> str:
        verdict = "ok" if self.passed else "DIFFERS"
        return (
            f"{self.name}: {verdict}, {self.differing} of {self.elements} differ, largest error "
            f"{self.error:.3g} {self.format} units (allowed there {self.tolerance:.3g}), "
            f"at most {self.excess:.3g} of the tolerance at {list(self.where)}"
        )


def compare(
    name: str, got: Tensor, want: Bounded, form: str, step: Tensor | None = None
) -> Comparison:
    """``got`` (any dtype) against ``want``; ``form`` is bf16, f32, or another name with its ``step``.

    What is not finite where the reference is has an infinite error.
    """
    actual = got.double().reshape(want.shape)
    units = step if step is not None else _unit(want.value, form)
    difference = (actual - want.value).abs()
    difference = torch.where(torch.isfinite(actual), difference, torch.inf)
    excess = torch.where(
        difference == 0, 0.0, torch.where(want.bound > 0, difference / want.bound, torch.inf)
    )
    return _summary(name, form, difference, units, want.bound, excess)


def equal(name: str, got: Tensor, want: Tensor) -> Comparison:
    """Integers, or bytes, that must be the same."""
    actual = got.reshape(want.shape).double()
    difference = (actual - want.double()).abs()
    excess = torch.where(difference == 0, 0.0, torch.inf)
    ones = torch.ones_like(difference)
    return _summary(name, "integer", difference, ones, torch.zeros_like(ones), excess)


def _summary(
    name: str, form: str, difference: Tensor, units: Tensor, bound: Tensor, excess: Tensor
) -> Comparison:
    if difference.numel() == 0:
        return Comparison(name, form, 0, 0, 0.0, 0.0, 0.0, ())
    errors = (difference / units).flatten()
    worst = int(errors.argmax())
    place = int(excess.flatten().argmax())
    where = tuple(int(i) for i in torch.unravel_index(torch.tensor(place), difference.shape))
    return Comparison(
        name,
        form,
        difference.numel(),
        int((difference != 0).sum()),
        float(errors[worst]),
        float((bound / units).flatten()[worst]),
        float(excess.flatten()[place]),
        where,
    )


def _unit(values: Tensor, form: str) -> Tensor:
    rows = values.square().mean(-1, keepdim=True).sqrt().expand(values.shape)
    size = torch.maximum(values.abs(), rows)
    return unit(size, 7, -126) if form == "bf16" else unit_f32(size)
