"""Padding of expert weights after loads and reloads, beside torch tensors that were filled by hand."""

from __future__ import annotations

import pytest
import torch

from mono_runtime.errors import InvalidValue
from mono_runtime.hooks.moe_oracle import zero_padding

EXPERTS, HIDDEN, FILLED, ALLOCATED = 3, 8, 5, 12


def garbage(*shape: int) -> torch.Tensor:
    """What an allocation may hold."""
    return torch.full(shape, float("nan"))


def load(w13: torch.Tensor, w2: torch.Tensor, checkpoint: dict[str, torch.Tensor]) -> None:
    """As a weight loader writes: each projection into its own rows, and nothing beside them."""
    if "gate" in checkpoint:
        w13[:, :FILLED] = checkpoint["gate"]
        w13[:, ALLOCATED : ALLOCATED + FILLED] = checkpoint["up"]
    else:
        w13[:, :FILLED] = checkpoint["up"]
    w2[:, :, :FILLED] = checkpoint["down"]


def checkpoint(seed: int, names: tuple[str, ...]) -> dict[str, torch.Tensor]:
    numbers = torch.Generator().manual_seed(seed)
    shapes = dict.fromkeys(("gate", "up"), (EXPERTS, FILLED, HIDDEN)) | {
        "down": (EXPERTS, HIDDEN, FILLED)
    }
    return {name: torch.randn(shapes[name], generator=numbers) for name in names}


def padded(part: torch.Tensor, dim: int) -> torch.Tensor:
    zeros = list(part.shape)
    zeros[dim] = ALLOCATED - FILLED
    return torch.cat([part, torch.zeros(zeros)], dim=dim)


def test_both_halves_of_a_gated_layer_are_zeroed_after_load_and_reload() -> None:
    w13, w2 = garbage(EXPERTS, 2 * ALLOCATED, HIDDEN), garbage(EXPERTS, HIDDEN, ALLOCATED)
    addresses = w13.data_ptr(), w2.data_ptr()
    for seed in (1, 2):
        parts = checkpoint(seed, ("gate", "up", "down"))
        load(w13, w2, parts)
        zero_padding(w13, w2, filled=FILLED, allocated=ALLOCATED, gated=True)
        assert torch.equal(
            w13, torch.cat([padded(parts["gate"], 1), padded(parts["up"], 1)], dim=1)
        )
        assert torch.equal(w2, padded(parts["down"], 2))
        # What a reload finds in the padding is whatever the layout before it left there.
        w13[:, FILLED:ALLOCATED] = float("nan")
        w13[:, ALLOCATED + FILLED :] = 7
        w2[:, :, FILLED:] = float("inf")
    assert addresses == (w13.data_ptr(), w2.data_ptr())


def test_a_layer_without_gates_has_one_half() -> None:
    w13, w2 = garbage(EXPERTS, ALLOCATED, HIDDEN), garbage(EXPERTS, HIDDEN, ALLOCATED)
    parts = checkpoint(3, ("up", "down"))
    load(w13, w2, parts)
    zero_padding(w13, w2, filled=FILLED, allocated=ALLOCATED, gated=False)
    assert torch.equal(w13, padded(parts["up"], 1))
    assert torch.equal(w2, padded(parts["down"], 2))


def test_weights_without_padding_stay_as_they_are() -> None:
    w13, w2 = torch.ones(EXPERTS, 2 * FILLED, HIDDEN), torch.ones(EXPERTS, HIDDEN, FILLED)
    zero_padding(w13, w2, filled=FILLED, allocated=FILLED, gated=True)
    assert bool((w13 == 1).all())
    assert bool((w2 == 1).all())


def test_parameters_and_strided_views_are_zeroed_in_place() -> None:
    # Engines keep parameters, and a view whose rows are further apart than they are long.
    wide = garbage(EXPERTS, HIDDEN, ALLOCATED + 4)
    w2 = torch.nn.Parameter(wide[..., :ALLOCATED], requires_grad=False)
    w13 = torch.nn.Parameter(garbage(EXPERTS, 2 * ALLOCATED, HIDDEN), requires_grad=False)
    zero_padding(w13, w2, filled=FILLED, allocated=ALLOCATED, gated=True)
    assert bool((wide[..., FILLED:ALLOCATED] == 0).all())
    assert bool(wide[..., ALLOCATED:].isnan().all())
    assert bool(wide[..., :FILLED].isnan().all())


@pytest.mark.parametrize(
    ("w13", "w2", "gated", "message"),
    [
        (
            (EXPERTS, 2 * ALLOCATED, HIDDEN),
            (EXPERTS, HIDDEN, ALLOCATED),
            False,
            "w13 has the shape",
        ),
        ((EXPERTS, ALLOCATED, HIDDEN), (EXPERTS, HIDDEN, ALLOCATED), True, "w13 has the shape"),
        ((EXPERTS, 2 * ALLOCATED, HIDDEN), (EXPERTS, HIDDEN, FILLED), True, "w2 has the shape"),
        ((EXPERTS, 2 * ALLOCATED), (EXPERTS, HIDDEN, ALLOCATED), True, "w13 has the shape"),
    ],
)
def test_weights_of_another_shape_are_refused_and_untouched(
    w13: tuple[int, ...], w2: tuple[int, ...], gated: bool, message: str
) -> None:
    one, two = torch.ones(w13), torch.ones(w2)
    with pytest.raises(InvalidValue, match=message):
        zero_padding(one, two, filled=FILLED, allocated=ALLOCATED, gated=gated)
    assert bool((one == 1).all())
    assert bool((two == 1).all())


@pytest.mark.parametrize(("filled", "allocated"), [(13, 12), (0, 12), (-1, 12)])
def test_a_checkpoint_that_fills_more_than_there_is_is_refused(filled: int, allocated: int) -> None:
    w13, w2 = torch.ones(1, 2 * allocated, 4), torch.ones(1, 4, allocated)
    with pytest.raises(InvalidValue, match=f"fills {filled} of an allocated"):
        zero_padding(w13, w2, filled=filled, allocated=allocated, gated=True)
