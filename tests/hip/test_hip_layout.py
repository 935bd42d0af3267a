"""The layouts that ctypes has and those of HIP's header."""

from __future__ import annotations

import ctypes

import pytest
from standin_hip import StandIn

from mono_runtime.hip.api import IpcHandle, Properties

# Of hipDeviceProp_tR0600, computed by a C compiler from hip_runtime_api.h of ROCm 6.
_OFFSETS = {
    "totalGlobalMem": 288,
    "multiProcessorCount": 388,
    "pciBusID": 584,
    "pciDomainID": 592,
    "sharedMemPerMultiprocessor": 640,
    "gcnArchName": 1160,
    "asicRevision": 1468,
}


@pytest.mark.parametrize(("member", "offset"), _OFFSETS.items())
def test_a_member_of_the_properties_lies_where_the_header_and_a_c_compiler_put_it(
    hip: StandIn, member: str, offset: int
) -> None:
    assert getattr(Properties, member).offset == offset
    assert hip.offset(member) == offset


def test_the_properties_are_as_large_as_in_c(hip: StandIn) -> None:
    assert ctypes.sizeof(Properties) == 1472
    assert hip.offset("sizeof") == 1472


def test_a_memory_handle_has_64_bytes() -> None:
    assert ctypes.sizeof(IpcHandle) == 64
