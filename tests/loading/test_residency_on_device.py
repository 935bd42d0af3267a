"""Whether persistent grids fit on real devices, against occupancies and compute units worked out by hand."""

from __future__ import annotations

import json

import pytest
from fake_driver import FakeDriver, device
from loading_kit import artefact, dispatch, kernel

from mono_runtime.driver import Device
from mono_runtime.errors import NotResident, StoreDamaged
from mono_runtime.expressions import Arg, Const
from mono_runtime.residency import Residency, require_resident
from mono_runtime.targets import product_named

# 8 waves of 64 in 512 work-items, 2 on each SIMD; 512 registers / 256 = 2 waves: one workgroup a CU.
ONE_EACH = kernel(vgpr=256)
# 512 / 128 = 4 waves a SIMD: two such workgroups.
TWO_EACH = kernel(vgpr=128)


def mi300x(**changes: object) -> Device:
    facts = {"name": "AMD Instinct MI300X", "arch": "gfx942:sramecc+:xnack-", "compute_units": 304}
    return device(**{**facts, **changes})  # type: ignore[arg-type]


def prove(
    on: Device,
    grid: int = 256,
    figures: object = ONE_EACH,
    *,
    occupancy: int | None = None,
    arch: str = "gfx942",
) -> Residency:
    made = artefact(dispatch(Const(grid)), kernels=(figures,), arch=arch)  # type: ignore[arg-type]
    driver = FakeDriver((on,), occupancy=occupancy)
    return require_resident(made, on, driver, [7], launch="deepseek_v41/k1")


def refusal(on: Device, **wanted: object) -> str:
    with pytest.raises(NotResident) as caught:
        prove(on, **wanted)  # type: ignore[arg-type]
    return str(caught.value)


def test_a_whole_mi300x_holds_256_workgroups_and_says_how() -> None:
    assert prove(mi300x(partition="SPX")).to_json() == {
        "persistent": True,
        "device": "AMD Instinct MI300X",
        "architecture": "gfx942:sramecc+:xnack-",
        "compute_units": 304,
        "partition": "SPX",
        "fits": [
            {
                "symbol": "k",
                "workgroups": 256,
                "threads": 512,
                "dynamic_lds": 0,
                "computed": 1,
                "reported": None,
                "each": 1,
            }
        ],
    }
    json.dumps(prove(mi300x()).to_json())


def test_304_workgroups_fit_on_304_compute_units_and_305_do_not() -> None:
    prove(mi300x(), grid=304)
    assert "its 305 workgroups wait for each other, and 304 fit" in refusal(mi300x(), grid=305)


def test_a_cpx_partition_of_an_mi300x_has_38_compute_units_and_the_way_out_is_spx() -> None:
    assert refusal(mi300x(compute_units=38, partition="CPX")) == (
        "deepseek_v41/k1 would never end on device 0, AMD Instinct MI300X (gfx942:sramecc+:xnack-,"
        " 38 compute units, partition mode CPX, a whole MI300X has 304): its 256 workgroups wait for"
        " each other, and 38 fit at once\n"
        "  where: kernel k, 512 work-items a workgroup; workgroups a compute unit holds: 1 by its"
        " resource figures, no answer by fake driver\n"
        "  do:    set the GPU to SPX mode (amd-smi set --gpu all --compute-partition SPX), use"
        " another one with 256 compute units, or build for fewer workgroups"
    )


def test_a_partition_is_recognised_by_its_compute_units_when_the_mode_is_not_known() -> None:
    text = refusal(mi300x(compute_units=38))
    assert "38 compute units, a whole MI300X has 304)" in text
    assert "set the GPU to SPX mode" in text


def test_an_mi308x_has_80_compute_units_and_no_mode_helps() -> None:
    text = refusal(mi300x(name="AMD Instinct MI308X", compute_units=80, partition="SPX"))
    assert "80 compute units, partition mode SPX): its 256 workgroups" in text
    assert "do:    use a GPU with at least 256 compute units" in text
    assert "set the GPU" not in text


def test_a_partition_of_an_mi308x_is_not_sent_to_spx_which_would_not_help() -> None:
    text = refusal(mi300x(name="AMD Instinct MI308X", compute_units=20, partition="QPX"))
    assert "a whole MI308X has 80" in text
    assert "set the GPU" not in text


def test_two_workgroups_a_compute_unit_halve_what_is_needed() -> None:
    prove(mi300x(compute_units=128), figures=TWO_EACH)
    assert "with 128 compute units" in refusal(mi300x(compute_units=127), figures=TWO_EACH)


def test_lds_bounds_what_a_compute_unit_holds() -> None:
    # 64 KiB on CDNA3 hold no workgroup of 96,640 bytes; 160 KiB on CDNA4 hold one.
    large = kernel(vgpr=128, lds=96640)
    assert prove(device(), figures=large, arch="gfx950").fits[0].each == 1
    text = refusal(mi300x(), figures=large)
    assert "0 fit at once" in text
    assert "not one workgroup fits on a compute unit" in text


def test_an_answer_of_the_driver_below_ours_decides_and_both_are_kept() -> None:
    proof = prove(mi300x(), figures=TWO_EACH, occupancy=1)
    assert (proof.fits[0].computed, proof.fits[0].reported, proof.fits[0].each) == (2, 1, 1)
    assert [f.symbol for f in proof.disagreements] == ["k"]
    text = refusal(mi300x(), grid=400, figures=TWO_EACH, occupancy=1)
    assert "holds: 2 by its resource figures, 1 by fake driver" in text


def test_an_answer_of_the_driver_above_ours_does_not_lift_the_bound() -> None:
    text = refusal(mi300x(), grid=400, figures=ONE_EACH, occupancy=2)
    assert "304 fit at once" in text


def test_equal_answers_are_no_disagreement() -> None:
    assert prove(mi300x(), occupancy=1).disagreements == ()


def test_a_driver_that_answers_zero_refuses() -> None:
    text = refusal(mi300x(), figures=TWO_EACH, occupancy=0)
    assert "0 fit at once" in text
    assert "2 by its resource figures, 0 by fake driver" in text


def test_the_driver_is_asked_with_the_work_items_and_lds_of_the_launch() -> None:
    on = mi300x(ordinal=3)
    driver = FakeDriver((on,), occupancy=1)
    made = artefact(dispatch(Const(2), 256, 4096), arch="gfx942")
    require_resident(made, on, driver, [7])
    assert driver.names("workgroups_per_compute_unit") == [(3, 7, 256, 4096)]


def test_every_dispatch_must_fit() -> None:
    made = artefact(
        dispatch(Const(256)),
        dispatch(Const(512), symbol="second"),
        kernels=(ONE_EACH, kernel(256, symbol="second")),
        arch="gfx942",
    )
    with pytest.raises(NotResident, match=r"second would never end .* 512 workgroups"):
        require_resident(made, mi300x(), FakeDriver(), [1, 2])


def test_a_compute_unit_mask_refuses_a_persistent_launch_and_says_how_to_unset_it() -> None:
    text = refusal(mi300x(restriction="HSA_CU_MASK is 0:0-151"))
    assert "it cannot be known how many serve it: HSA_CU_MASK is 0:0-151" in text
    assert "unset HSA_CU_MASK" in text


def test_a_launch_that_is_not_persistent_runs_on_any_device() -> None:
    on = mi300x(compute_units=1, restriction="HSA_CU_MASK is 0:0")
    made = artefact(dispatch(Arg("rows")), arch="gfx942", persistent=False)
    proof = require_resident(made, on, FakeDriver((on,)), [1])
    assert (proof.persistent, proof.fits) == (False, ())


def test_a_persistent_grid_that_depends_on_arguments_is_refused() -> None:
    made = artefact(dispatch(Arg("rows")), arch="gfx942")
    with pytest.raises(NotResident, match="k is persistent and its grid depends on arguments"):
        require_resident(made, mi300x(), FakeDriver(), [1])


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (artefact(dispatch(Const(1)), kernels=()), "no usable resource figures for the kernel k"),
        (
            artefact(dispatch(Const(1)), kernels=(kernel(wavefront=0),)),
            "no usable resource figures",
        ),
        (artefact(dispatch(Const(1), threads=1024)), "1024 work-items, where the kernel allows"),
        (artefact(dispatch(Const(0))), "a launch of 0 workgroups"),
    ],
)
def test_figures_that_make_no_sense_are_damage(made: object, message: str) -> None:
    with pytest.raises(StoreDamaged, match=message):
        require_resident(made, device(), FakeDriver(), [1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("AMD Instinct MI300X", "MI300X"),
        ("AMD Instinct MI325X OAM", "MI325X"),
        ("AMD_Instinct_MI355X", "MI355X"),
        ("AMD Instinct MI210", None),
        ("AMD Instinct MI300XYZ", None),
        ("", None),
    ],
)
def test_products_are_found_in_what_drivers_call_a_device(spelling: str, name: str | None) -> None:
    product = product_named(spelling)
    assert (product.name if product else None) == name
