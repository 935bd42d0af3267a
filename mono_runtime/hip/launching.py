"""Kernel launches whose C arguments are made once, so that a call costs little more than HIP itself."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_uint, c_void_p
from typing import Any

from mono_runtime.driver import Grid, Submit
from mono_runtime.errors import InvalidValue
from mono_runtime.hip.api import BUFFER_POINTER, BUFFER_SIZE, END
from mono_runtime.hip.calls import Calls

_FUNCTION = "hipModuleLaunchKernel"
# A process launches on few streams; whoever makes ever new ones must not make this grow for ever.
_STREAMS = 16
_UINT_MAX = 2**32 - 1
_POINTER_MAX = 2**64 - 1


class KernargBuffer:
    """The ``extra`` argument of a launch, which hands over a packed kernarg buffer.

    HIP copies the buffer during the call: into the command's own memory (CLR hip_module.cpp,
    ihipLaunchKernelCommand, "Capture the kernel arguments"), or into the node of a graph that is
    being captured (hip_graph_internal.hpp, GraphKernelNode::copyParams). So it may be written again
    as soon as the call has returned, and a graph does not refer to it.
    """

    def __init__(self, kernargs: bytearray) -> None:
        size = len(kernargs)
        self._bytes = (ctypes.c_char * size).from_buffer(kernargs)
        self._size = ctypes.c_size_t(size)
        self._extra = (c_void_p * 5)(
            BUFFER_POINTER,
            ctypes.addressof(self._bytes),
            BUFFER_SIZE,
            ctypes.addressof(self._size),
            END,
        )
        # A kernel without arguments takes neither form of them.
        self.argument = c_void_p.from_param(ctypes.addressof(self._extra)) if size else None


def _checked(values: Sequence[int], what: str) -> list[Any]:
    for value in values:
        if not 0 <= value <= _UINT_MAX:
            raise InvalidValue(f"{what} {tuple(values)} does not fit into 32 bits")
    return [c_uint.from_param(value) for value in values]


def prepare_launch(
    calls: Calls,
    device: int,
    function: int,
    grid: Grid,
    block: Grid,
    dynamic_lds: int,
    kernargs: bytearray,
    several_devices: bool,
) -> Submit:
    """`mono_runtime.driver.Driver.prepare`.

    ``several_devices`` says whether the calling thread's current device has to be looked at: HIP
    takes it for the default stream, and for every stream that is being captured.
    """
    buffer = KernargBuffer(kernargs)  # alive as long as the callable, which refers to it
    head = (
        c_void_p.from_param(function),
        *_checked(grid, "grid"),
        *_checked(block, "block"),
        *_checked((dynamic_lds,), "dynamic LDS"),
    )
    launch = calls.api.bare_function(_FUNCTION)
    made: dict[int, tuple[Any, ...]] = {}

    def arguments(stream: int) -> tuple[Any, ...]:
        if not 0 <= stream <= _POINTER_MAX:
            raise InvalidValue(f"{stream} is not a raw stream (an address, or 0)")
        if len(made) >= _STREAMS:
            made.clear()
        args = made[stream] = (*head, c_void_p.from_param(stream), None, buffer.argument)
        return args

    return _submit(calls, device, launch, made, arguments, several_devices)


def _submit(
    calls: Calls,
    device: int,
    launch: Callable[..., int],
    made: dict[int, tuple[Any, ...]],
    arguments: Callable[[int], tuple[Any, ...]],
    several_devices: bool,
) -> Submit:
    fail = calls.fail

    def submit(stream: int) -> None:
        try:
            args = made[stream]
        except KeyError:
            args = arguments(stream)
        status = launch(*args)
        if status:
            fail(_FUNCTION, status, device)

    if not several_devices:
        return submit
    cell, get_device = calls.cell, calls.get_device

    def submit_on_device(stream: int) -> None:
        try:
            args = made[stream]
        except KeyError:
            args = arguments(stream)
        if get_device(cell.pointer) or cell.value.value != device:
            status = calls.status_of(device, launch, *args)
        else:
            status = launch(*args)
        if status:
            fail(_FUNCTION, status, device)

    return submit_on_device
