"""What a code object is for, read from ELF headers that the tests lay out, and which devices run it."""

from __future__ import annotations

import pytest
from elf_kit import minimal_elf
from fake_driver import device

from mono_runtime.elf import elf_target, require_architecture
from mono_runtime.errors import StoreDamaged, WrongDevice


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (minimal_elf("gfx942"), "gfx942"),
        (minimal_elf("gfx950", payload=b"more"), "gfx950"),
        (minimal_elf("gfx942", xnack=True), "gfx942:xnack+"),
        (minimal_elf("gfx942", xnack=False), "gfx942:xnack-"),
        (minimal_elf("gfx942", sramecc=True), "gfx942:sramecc+"),
        (minimal_elf("gfx950", xnack=False, sramecc=False), "gfx950:sramecc-:xnack-"),
    ],
)
def test_the_target_is_read_from_the_header(code: bytes, expected: str) -> None:
    assert str(elf_target(code)) == expected


def test_the_header_is_the_one_that_the_compiler_writes() -> None:
    # The first bytes, and the flags, of a code object that FlyDSL made for gfx950.
    assert minimal_elf("gfx950")[:16].hex() == "7f454c46020101400200000000000000"
    assert minimal_elf("gfx950")[48:52] == bytes.fromhex("4f050000")


def changed(offset: int, value: int) -> bytes:
    code = bytearray(minimal_elf("gfx950"))
    code[offset] = value
    return bytes(code)


@pytest.mark.parametrize(
    "code",
    [
        b"",
        b"\x7fELF",
        minimal_elf("gfx950")[:63],
        b"not an ELF at all, but long enough to be one ------------------------",
        changed(4, 1),  # 32 bits
        changed(5, 2),  # big endian
        changed(7, 0),  # System V instead of AMDGPU HSA
        changed(8, 1),  # code object V3, whose feature bits differ
        changed(8, 9),  # a version that nobody knows
        changed(18, 62),  # x86-64
    ],
)
def test_other_files_are_no_code_objects(code: bytes) -> None:
    with pytest.raises(StoreDamaged, match="not an AMDGPU code object") as caught:
        elf_target(code, where="code object sha256:ab")
    assert caught.value.where == "code object sha256:ab"


def test_a_machine_that_is_not_known_is_a_wrong_device() -> None:
    with pytest.raises(WrongDevice, match="machine 0x3f, which is none of gfx942, gfx950"):
        elf_target(minimal_elf("gfx90a"))


def test_code_for_any_setting_runs_with_either() -> None:
    for flags in ("gfx942", "gfx942:sramecc+:xnack-", "gfx942:sramecc-:xnack+"):
        on = device("AMD Instinct MI300X", flags, 304)
        assert require_architecture(minimal_elf("gfx942"), on, arch="gfx942").name == "gfx942"


def test_another_architecture_is_refused_with_what_is_there_and_what_the_device_is() -> None:
    with pytest.raises(WrongDevice) as caught:
        require_architecture(minimal_elf("gfx942"), device(ordinal=2), where="k1")
    assert str(caught.value) == (
        "the store has code for gfx942, and device 2 (AMD Instinct MI355X) is"
        " gfx950:sramecc+:xnack-\n"
        "  where: k1\n"
        "  do:    use a store that was built with --arch gfx950, or a gfx942 device"
    )


@pytest.mark.parametrize(
    ("code", "flags", "wanted"),
    [
        (minimal_elf("gfx942", xnack=True), "gfx942:sramecc+:xnack-", "xnack+ (HSA_XNACK"),
        (minimal_elf("gfx942", xnack=False), "gfx942:sramecc+:xnack+", "xnack- (HSA_XNACK"),
        (minimal_elf("gfx942", sramecc=False), "gfx942:sramecc+:xnack-", "sramecc-, or"),
    ],
)
def test_a_feature_flag_that_contradicts_is_refused(code: bytes, flags: str, wanted: str) -> None:
    on = device("AMD Instinct MI300X", flags, 304)
    with pytest.raises(WrongDevice, match="the store has code for gfx942:") as caught:
        require_architecture(code, on)
    assert f"run the device with {wanted}" in str(caught.value)


def test_a_flag_that_the_device_does_not_state_contradicts_nothing() -> None:
    on = device("AMD Instinct MI300X", "gfx942", 304)
    require_architecture(minimal_elf("gfx942", xnack=True), on)


def test_code_for_another_architecture_than_the_artefacts_is_damage() -> None:
    with pytest.raises(StoreDamaged, match="promises gfx942 and the code object is for gfx950"):
        require_architecture(minimal_elf("gfx950"), device(), arch="gfx942")
