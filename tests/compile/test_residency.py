"""Residency against occupancies worked out by hand from the CDNA3 and CDNA4 ISA documents."""

from __future__ import annotations

import pytest

from mono_build.errors import ResidencyError, UsageError
from mono_build.residency import check_residency
from mono_build.targets import devices_for
from mono_runtime.artefact import KernelResources
from mono_runtime.expressions import Arg, Const
from mono_runtime.launch_plan import Dispatch
from mono_runtime.occupancy import workgroups_per_compute_unit
from mono_runtime.targets import TARGETS


def kernel(vgpr: int = 128, lds: int = 0, agpr: int = 0, most: int = 512) -> KernelResources:
    return KernelResources("k", vgpr, agpr, 100, 0, 0, lds, 0, 320, most, 64)


def dispatch(grid: int, threads: int = 512, lds: int = 0) -> Dispatch:
    one = Const(1)
    code = "sha256:" + "0" * 64
    return Dispatch(
        "k", code, (Const(grid), one, one), (Const(threads), one, one), Const(lds), 0, ()
    )


@pytest.mark.parametrize(
    ("arch", "vgpr", "agpr", "lds", "threads", "expected"),
    [
        # 512 work-items are 8 waves, 2 on each of 4 SIMDs; 512 registers / 128 = 4 waves a SIMD.
        ("gfx950", 128, 0, 0, 512, 2),
        # 512 / 256 = 2 waves a SIMD: exactly one such workgroup.
        ("gfx950", 256, 0, 0, 512, 1),
        # 257 registers are allocated as 264: 1 wave a SIMD, so 8 waves do not fit at all.
        ("gfx950", 257, 0, 0, 512, 0),
        # AGPRs come from the same file.
        ("gfx942", 128, 128, 0, 512, 1),
        # 64 waves of few registers are bounded by 8 wave slots a SIMD: 8 workgroups of 4 waves.
        ("gfx942", 24, 0, 0, 256, 8),
        # 160 KiB of LDS hold one of 96,640 B; 64 KiB do not.
        ("gfx950", 128, 0, 96640, 512, 1),
        ("gfx942", 128, 0, 96640, 512, 0),
        # 142,368 B is what K2 takes at 48 rows.
        ("gfx950", 234, 0, 142368, 512, 1),
        # 32,768 B: two in 64 KiB, by registers two as well.
        ("gfx942", 128, 0, 32768, 512, 2),
        # One byte more takes another 512-byte granule, and only one fits.
        ("gfx942", 128, 0, 32769, 512, 1),
    ],
)
def test_workgroups_that_fit_on_a_compute_unit(
    arch: str, vgpr: int, agpr: int, lds: int, threads: int, expected: int
) -> None:
    assert workgroups_per_compute_unit(TARGETS[arch], kernel(vgpr, lds, agpr), threads) == expected


def test_256_workgroups_fit_on_an_mi355x_and_257_do_not() -> None:
    devices = devices_for("gfx950")
    check_residency(TARGETS["gfx950"], devices, dispatch(256), kernel(256, 96640))
    with pytest.raises(ResidencyError, match="would deadlock on MI350X: its 257 workgroups"):
        check_residency(TARGETS["gfx950"], devices, dispatch(257), kernel(256, 96640))


def test_an_mi308x_has_too_few_compute_units_for_a_mono_launch() -> None:
    devices = devices_for("gfx942", ("mi308x",))
    with pytest.raises(ResidencyError, match="80 compute units hold 80"):
        check_residency(TARGETS["gfx942"], devices, dispatch(256), kernel(256, 60000))


def test_dynamic_lds_counts() -> None:
    devices = devices_for("gfx942")
    with pytest.raises(ResidencyError, match="would deadlock"):
        check_residency(TARGETS["gfx942"], devices, dispatch(256, lds=40000), kernel(128, 40000))


def test_a_grid_that_depends_on_arguments_has_no_proof() -> None:
    one = Const(1)
    code = "sha256:" + "0" * 64
    open_grid = Dispatch("k", code, (Arg("n"), one, one), (one, one, one), one, 0, ())
    with pytest.raises(ResidencyError, match="grid depends on arguments"):
        check_residency(TARGETS["gfx950"], devices_for("gfx950"), open_grid, kernel())


def test_a_workgroup_larger_than_the_object_allows_is_refused() -> None:
    with pytest.raises(
        ResidencyError, match="512 work-items a workgroup, its code object allows 256"
    ):
        check_residency(TARGETS["gfx950"], devices_for("gfx950"), dispatch(4), kernel(most=256))


def test_unknown_devices_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="unknown device 'MI9000X'"):
        devices_for("gfx950", ("MI9000X",))
