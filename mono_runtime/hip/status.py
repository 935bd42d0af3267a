"""Errors for what HIP reports: its number, name and text, the call, the device, and what to do."""

from __future__ import annotations

import os
from pathlib import Path

from mono_runtime.errors import DeviceMissing, DriverError, DriverMissing, WrongDevice
from mono_runtime.hip.api import Api

_OUT_OF_MEMORY = 2
_NOT_INITIALIZED = 3
_INSUFFICIENT_DRIVER = 35
_NO_DEVICE = 100
_INVALID_DEVICE = 101
_INVALID_CONTEXT = 201
_NO_BINARY_FOR_GPU = 209
_CAPTURE_UNSUPPORTED = 900
_CAPTURE_IMPLICIT = 906

# Calls that take a device's number: the others report hipErrorInvalidDevice for other reasons.
_BY_ORDINAL = frozenset(
    {"hipSetDevice", "hipDeviceGetAttribute", "hipDeviceGetPCIBusId", "hipGetDevicePropertiesR0600"}
)
_FIXES = {
    _OUT_OF_MEMORY: "free device memory, or lower the share of it that the engine takes",
    _INSUFFICIENT_DRIVER: "update the amdgpu kernel driver, or use an older ROCm",
    _INVALID_DEVICE: "name a device of hipGetDeviceCount; HIP_VISIBLE_DEVICES may hide some",
    _CAPTURE_UNSUPPORTED: "do this before the graph capture begins",
    _CAPTURE_IMPLICIT: "do this before the graph capture begins, or not on the default stream",
    # An exception of an earlier kernel is reported by whatever call comes next.
    700: "an earlier kernel accessed memory that is not mapped; run with AMD_LOG_LEVEL=3 to find it",
    719: "an earlier kernel failed, or the workgroup is larger than the kernel allows",
}
_CALL_FIXES = {
    "hipIpcGetMemHandle": "only whole allocations of 4096-byte pages can be shared",
    "hipIpcOpenMemHandle": "the exporting process must be alive, and must not be this one",
}
_KFD = Path("/dev/kfd")


def why_no_device() -> str:
    """What of this machine explains that HIP sees no device."""
    for name in ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        if name in os.environ:
            return f"{name}={os.environ[name]} chooses the devices: correct or unset it"
    if not _KFD.exists():
        return f"{_KFD} is absent: load the amdgpu driver, or give the container --device={_KFD} --device=/dev/dri"
    if not os.access(_KFD, os.R_OK | os.W_OK):
        return f"this user may not open {_KFD}: add it to the groups render and video"
    return "see what rocminfo says"


def failure(api: Api, function: str, status: int, device: int | None) -> DriverError | WrongDevice:
    """The error for a status that ``function`` returned on ``device`` (None: on none)."""
    symbol = api.name_of(status)
    place = "" if device is None else f" on device {device}"
    what = f"{function} failed{place}: {symbol} ({status}): {api.text_of(status)}"
    fix = _FIXES.get(status) or _CALL_FIXES.get(function)
    where = api.library.path
    if status == _NO_BINARY_FOR_GPU:
        return WrongDevice(
            what, where=where, fix="load a store that holds this device's architecture and features"
        )
    error: DriverError
    # HIP 5 says hipErrorInvalidDevice when a thread can have no current device.
    if status == _NO_DEVICE or function == "hipGetDevice":
        error = DeviceMissing(what, where=where, fix=why_no_device())
    elif status == _INVALID_DEVICE and function in _BY_ORDINAL:
        error = DeviceMissing(what, where=where, fix=fix)
    elif status in (_INSUFFICIENT_DRIVER, _NOT_INITIALIZED):
        error = DriverMissing(what, where=where, fix=fix or why_no_device())
    else:
        error = DriverError(what, where=where, fix=fix)
    error.status, error.symbol = status, symbol
    return error
