"""Reading code objects, against ELFs that the tests lay out byte by byte."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace

import pytest
from standin_compiler import elf as make_elf

from mono_build import elf
from mono_build.errors import ObjectMismatch
from mono_runtime.artefact import Artefact
from mono_runtime.expressions import Arg, Const
from mono_runtime.launch_plan import Argument, Dispatch, KernelArgument, LaunchPlan
from mono_runtime.targets import TARGETS

ZERO = "sha256:" + "0" * 64


def artefact_for(data: bytes) -> Artefact:
    """The artefact that belongs to ``make_elf("k", arguments=(8, 4))``."""
    parsed = elf.parse(data)
    one = Const(1)
    dispatch = Dispatch(
        symbol="k",
        code_object="sha256:" + hashlib.sha256(data).hexdigest(),
        grid=(one, one, one),
        block=(Const(256), one, one),
        dynamic_lds=Const(0),
        kernarg_size=12,
        arguments=(
            KernelArgument("a", "i64", 0, Arg("a")),
            KernelArgument("n", "i32", 8, Arg("n")),
        ),
    )
    plan = LaunchPlan((Argument("a", "i64"), Argument("n", "i32")), "stream", False, (dispatch,))
    return Artefact(ZERO, "gfx950", ZERO, plan, (parsed.code_object,))


def test_figures_are_those_of_the_notes() -> None:
    data = make_elf("kern", lds=4096, arguments=(8, 4, 8), vgpr=77, max_workgroup=512)
    parsed = elf.parse(data)
    kernel = parsed.kernels["kern"]
    assert parsed.mach == 0x4F
    assert (kernel.resources.vgpr, kernel.resources.lds, kernel.resources.max_workgroup) == (
        77,
        4096,
        512,
    )
    assert (kernel.resources.kernarg, kernel.resources.wavefront) == (24, 64)
    assert [(o, s) for o, s, _ in kernel.arguments] == [(0, 8), (8, 4), (16, 8)]
    assert parsed.code_object.size == len(data)
    assert parsed.code_object.text_size == 64


def test_machine_code_ignores_the_symbol_and_sees_the_instructions() -> None:
    one, other = make_elf("one"), make_elf("other")
    changed = make_elf("one", text=b"\x00\x00\x81\xbf" * 15 + b"\x00\x00\x82\xbf")
    codes = [elf.parse(data).code_object for data in (one, other, changed)]
    assert codes[0].digest != codes[1].digest
    assert codes[0].machine_code == codes[1].machine_code
    assert codes[0].machine_code != codes[2].machine_code


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a readable AMDGPU ELF"),
        (b"\x7fELF" + b"\0" * 60, "not a readable AMDGPU ELF"),
        (make_elf("k", machine=62), "not for AMDGPU"),
        (make_elf("k")[:300], "not a readable AMDGPU ELF"),
    ],
)
def test_other_files_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(ObjectMismatch, match=message):
        elf.parse(data)


def test_an_object_for_another_target_is_named() -> None:
    parsed = elf.parse(make_elf("k", arch="gfx942"))
    assert elf.check_target(parsed, TARGETS["gfx942"]) == []
    assert elf.check_target(parsed, TARGETS["gfx950"]) == [
        "the ELF is for machine 0x4c, gfx950 is 0x4f"
    ]


def test_an_object_that_fixes_xnack_is_named() -> None:
    # EF_AMDGPU_FEATURE_XNACK_ON_V4 is 0x300, SRAMECC_ANY 0x400.
    parsed = elf.parse(make_elf("k", flags=0x4F | 0x300 | 0x400))
    assert elf.check_target(parsed, TARGETS["gfx950"]) == [
        "the ELF fixes XNACK or SRAMECC (features 0x700)"
    ]


def test_an_artefact_that_fits_its_object_has_no_faults() -> None:
    data = make_elf("k", arguments=(8, 4))
    assert elf.check_artefact(data, artefact_for(data)) == []


def test_an_object_with_another_layout_is_found() -> None:
    data = make_elf("k", arguments=(8, 4))
    artefact = artefact_for(data)
    dispatch = replace(artefact.plan.dispatches[0], kernarg_size=16)
    planned = replace(artefact, plan=replace(artefact.plan, dispatches=(dispatch,)))
    assert elf.check_artefact(data, planned) == ["k: kernarg segment of 12 bytes, planned 16"]


def test_a_swapped_object_is_found_by_its_figures() -> None:
    artefact = artefact_for(make_elf("k", arguments=(8, 4)))
    other = make_elf("k", arguments=(8, 4), vgpr=99)
    assert "the recorded resource figures are not the ELF's" in elf.check_artefact(other, artefact)


def test_machine_and_features_are_the_header_flags() -> None:
    # ELF-64 object file format: e_flags is the 32-bit word at byte 48.
    data = make_elf("k", arch="gfx942")
    parsed = elf.parse(data)
    assert struct.unpack_from("<I", data, 48)[0] == parsed.mach | parsed.features == 0x54C
