"""What a wrong kernel or a wrong call is told: where, in which instruction, and why."""

from __future__ import annotations

import io
import re
import struct
from pathlib import Path

import pytest
import torch
from elftools.elf.elffile import ELFFile
from kernel_kit import ARCHITECTURES, Devices, normal

from mono_build.emulator.errors import Deadlock, NotModelledInstruction, WildAccess

# VOP1 with the opcode 0xFF, which no CDNA has, v0 and v0.
_UNKNOWN = 0x7E01FF00
# s_endpgm (CDNA3 ISA, SOPP opcode 1).
_END = 0xBF810000


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_store_behind_the_end_names_kernel_instruction_lane_and_address(
    kernels: Path, arch: str
) -> None:
    devices = Devices(kernels, arch)
    count = 1000
    inputs = [devices.array(normal(1024, seed=s)) for s in (1, 2)]
    out = devices.poisoned(4 * count)
    devices.launch("overrun")(*inputs, out, count)
    with pytest.raises(WildAccess) as caught:
        devices.driver.synchronize(0)
    message = str(caught.value)
    # Work-item 1000 is lane 40 of the fourth wave of the fourth workgroup.
    assert f"lane 40 writes 4 bytes at 0x{out + 4 * count:x}" in message
    assert f"0 bytes behind the end of device 0's allocation of 4000 bytes at 0x{out:x}" in message
    assert "workgroup (3, 0, 0), wave 3, kernel emulated_overrun" in message
    assert re.search(r"global_store_dword at 0x[0-9a-f]+ \[[0-9a-f]{8} [0-9a-f]{8}\]", message)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_load_from_memory_that_was_given_back_is_reported(kernels: Path, arch: str) -> None:
    devices = Devices(kernels, arch)
    left, right, out = (devices.array(normal(256, seed=s)) for s in (1, 2, 3))
    launch = devices.launch("vector_add")
    launch(left, right, out, 256)
    devices.driver.free(0, right)
    # What is allocated next must not lie where a stale address points.
    for _ in range(8):
        devices.poisoned(1024)
    launch(left, right, out, 256)
    with pytest.raises(WildAccess, match=f"lane 0 reads 4 bytes at 0x{right:x}"):
        devices.driver.synchronize(0)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_store_behind_a_workgroups_lds_is_reported(kernels: Path, arch: str) -> None:
    devices = Devices(kernels, arch)
    out = devices.poisoned(1024)
    launch = devices.launch("lds_overrun")
    launch(out, 0)
    expected = torch.arange(255, -1, -1, dtype=torch.int32)
    assert torch.equal(devices.read(out, expected), expected)
    launch(out, 4)
    # The fourth wave's last four lanes are behind the 1024 bytes.
    with pytest.raises(
        WildAccess, match="lane 60 writes 4 bytes at LDS offset 1024, and there are 1024"
    ):
        devices.driver.synchronize(0)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_device_goes_on_after_a_wild_access(kernels: Path, arch: str) -> None:
    devices = Devices(kernels, arch)
    values = normal(256, seed=1)
    place, out = devices.array(values), devices.poisoned(1024)
    launch = devices.launch("vector_add")
    launch(place, 4096, out, 256)
    with pytest.raises(WildAccess):
        devices.driver.synchronize(0)
    launch(place, place, out, 256)
    assert torch.equal(devices.read(out, values), values + values)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_handshake_with_someone_who_never_comes_tells_where_everybody_waits(
    kernels: Path, arch: str
) -> None:
    devices = Devices(kernels, arch, wait=0.0)
    flags = devices.array(torch.zeros(257, dtype=torch.int32))
    devices.launch("handshake")(devices.poisoned(2048), flags, devices.poisoned(2048), 257)
    with pytest.raises(Deadlock) as caught:
        devices.driver.synchronize(0)
    message = str(caught.value)
    groups = re.findall(r"device 0, emulated_handshake: (\d+) waves (at a barrier|around)", message)
    waiting = {"at a barrier": 0, "around": 0}
    for waves, state in groups:
        waiting[state] += int(waves)
    # One wave of each workgroup looks for the 257th flag; the other three wait for it at the barrier.
    assert waiting == {"at a barrier": 768, "around": 256}
    assert re.search(r"s_barrier|global_load_dword|s_sleep", message)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_rank_whose_peer_was_not_launched_is_named(kernels: Path, arch: str) -> None:
    devices = Devices(kernels, arch, arch, wait=0.0)
    own = devices.array(normal(2048, seed=1), 1)
    mail = [devices.poisoned(8192, d) for d in (0, 1)]
    flags = [devices.array(torch.zeros(8, dtype=torch.int32), d) for d in (0, 1)]
    out = devices.poisoned(8192, 1)
    devices.launch("exchange", 1)(own, mail[1], flags[1], mail[0], flags[0], out, 1)
    with pytest.raises(Deadlock, match=r"device 1, emulated_exchange: \d+ waves around"):
        devices.driver.synchronize(1)


def _patched(code: bytes, old: int, new: int) -> tuple[bytes, int]:
    """The object with the first word ``old`` of its instructions replaced, and that word's address."""
    section = ELFFile(io.BytesIO(code)).get_section_by_name(".text")
    words = struct.unpack(f"<{section['sh_size'] // 4}I", section.data())
    at = 4 * words.index(old)
    place = section["sh_offset"] + at
    patched = code[:place] + struct.pack("<I", new) + code[place + 4 :]
    return patched, section["sh_addr"] + at


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_an_unknown_instruction_stops_with_name_address_and_encoding(
    kernels: Path, arch: str
) -> None:
    devices = Devices(kernels, arch)
    code, address = _patched(devices.code("vector_add", arch), _END, _UNKNOWN)
    place = devices.array(normal(256, seed=1))
    devices.launch("vector_add", code=code)(place, place, place, 256)
    with pytest.raises(NotModelledInstruction) as caught:
        devices.driver.synchronize(0)
    message = str(caught.value)
    assert f"unknown at 0x{address:x} [7e01ff00]" in message
    assert "kernel emulated_vector_add" in message


def test_an_unknown_instruction_that_nobody_reaches_does_no_harm(kernels: Path) -> None:
    devices = Devices(kernels, "gfx950")
    # Behind the end of the program, where the compiler pads.
    padding = 0xBF800000  # s_nop 0
    code, _ = _patched(devices.code("vector_add", "gfx950"), padding, _UNKNOWN)
    values = normal(256, seed=1)
    place = devices.array(values)
    devices.launch("vector_add", code=code)(place, place, place, 256)
    assert torch.equal(devices.read(place, values), values + values)
