"""Matrix products: bf16, the architectures' fp8, and the scaled formats of CDNA4."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from kernel_kit import ARCHITECTURES, FP8, Devices, generator, normal, worst

_U32 = 2.0**-24
# E2M1 by code (OCP Microscaling Formats 1.0, table 5).
_FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def _product(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The exact product and what its additions may lose.

    Products of two 8-bit mantissas are exact in f32. One addition for each element of k, and one for each
    piece that an instruction adds to the accumulator, round once each; no partial sum is larger than the
    sum of magnitudes.
    """
    a, b = a.to(torch.float64), b.to(torch.float64)
    length = a.shape[1]
    tolerance = (length + length // 16) * _U32 * (a.abs() @ b.abs().T)
    return a @ b.T, tolerance * (1 + 2.0**-10)


def _run(devices: Devices, name: str, a: torch.Tensor, b: torch.Tensor) -> float:
    out = devices.poisoned(4 * len(a) * len(b))
    arrays = [devices.array(x) for x in (a, b)]
    devices.launch(name)(*arrays, out, len(a), len(b), a.shape[1])
    exact, tolerance = _product(a, b)
    return worst(devices.read(out, torch.empty(len(a), len(b))), exact, tolerance)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_bf16_through_lds(kernels: Path, arch: str) -> None:
    a, b = (normal(n, 192, seed=n).to(torch.bfloat16) for n in (64, 128))
    assert _run(Devices(kernels, arch), "gemm_bf16", a, b) <= 1


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_fp8_in_the_architectures_own_format(kernels: Path, arch: str) -> None:
    a, b = (normal(n, 96, seed=n).to(FP8[arch]) for n in (32, 64))
    assert _run(Devices(kernels, arch), "gemm_fp8", a, b) <= 1


@pytest.mark.parametrize(("arch", "product"), [("gfx942", 0.25), ("gfx950", 4.0)])
def test_fp8_codes_are_worth_what_the_architecture_says(
    kernels: Path, arch: str, product: float
) -> None:
    """The other architecture's code of 1: bias 8 (FNUZ) makes half of it, bias 7 (OCP) twice as much."""
    other = FP8["gfx950" if arch == "gfx942" else "gfx942"]
    a, b = (torch.ones(n, 32).to(other) for n in (16, 64))
    devices = Devices(kernels, arch)
    out = devices.poisoned(4 * 16 * 64)
    devices.launch("gemm_fp8")(devices.array(a), devices.array(b), out, 16, 64, 32)
    expected = torch.full((16, 64), 32 * product)
    assert torch.equal(devices.read(out, expected), expected)


def _codes(form: str, rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes as they lie in memory, and what the elements are worth without scales; k = 512."""
    if form == "fp8":
        codes = normal(rows, 512, seed=seed).to(torch.float8_e4m3fn)
        return codes, codes.to(torch.float64)
    codes = torch.randint(0, 16, (rows, 512), generator=generator(seed))
    packed = (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8)
    return packed, _FP4[codes].to(torch.float64)


@pytest.mark.parametrize(
    ("name", "left", "right"),
    [("mxfp8", "fp8", "fp8"), ("mxfp4", "fp4", "fp4"), ("mxfp8_mxfp4", "fp8", "fp4")],
)
def test_scaled_formats_with_another_scale_in_every_block(
    kernels: Path, name: str, left: str, right: str
) -> None:
    devices = Devices(kernels, "gfx950")
    rows, width, blocks = 32, 64, 512 // 32
    data, values, stored = [], [], []
    for form, count, seed in ((left, rows, 21), (right, width, 22)):
        codes, plain = _codes(form, count, seed)
        # E8M0: 2 to the power of the code less 127. Neighbours in k differ, and so do rows.
        numbers = torch.arange(count)[:, None] * 5 + torch.arange(blocks) * 3
        scales = 127 - 9 + numbers % 19
        data.append(devices.array(codes))
        values.append(torch.ldexp(plain, (scales - 127).repeat_interleave(32, 1)))
        by_step = scales.reshape(count, 4, 4).transpose(1, 2).to(torch.uint8)
        stored.append(devices.array(by_step))
    out = devices.poisoned(4 * rows * width)
    devices.launch(name)(*data, *stored, out, rows, width)
    exact, tolerance = _product(*values)
    assert worst(devices.read(out, torch.empty(rows, width)), exact, tolerance) <= 1
