"""Calls of HIP on a device: every status is checked, and the thread's current device stays its own."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from mono_runtime.hip.api import CAPTURE_MODE_RELAXED, SUCCESS, Api
from mono_runtime.hip.status import failure


class DeviceCell(threading.local):
    """A place for hipGetDevice to write to, one for each thread."""

    def __init__(self) -> None:
        self.value = ctypes.c_int()
        self.pointer = ctypes.byref(self.value)


class Calls:
    """The functions of one library, called with their status checked.

    Attributes:
        api: the functions themselves.
        cell: where `get_device` writes to.
        get_device: hipGetDevice, to be called with the cell's pointer.
    """

    def __init__(self, api: Api) -> None:
        self.api = api
        self.cell = DeviceCell()
        # It only reads a variable of the thread.
        self.get_device = api.bare_function("hipGetDevice", keep_lock=True)

    def current_device(self) -> int:
        """The calling thread's current device."""
        cell = self.cell
        status = self.get_device(cell.pointer)
        if status != SUCCESS:
            self.fail("hipGetDevice", status, None)
        return cell.value.value

    def fail(self, function: str, status: int, device: int | None) -> NoReturn:
        """Raise the error for ``status``, and take it from HIP's memory of the last error.

        Others in the process (torch) ask for the last error and would take it for theirs.
        """
        self.forget_error()
        raise failure(self.api, function, status, device)

    def forget_error(self) -> None:
        """Take an error that was dealt with from HIP's memory of the last one."""
        self.api.function("hipGetLastError")()

    def call(self, function: str, *args: Any, device: int | None = None) -> None:
        """Call on whatever device is current; ``device`` is for the message."""
        status = self.api.function(function)(*args)
        if status != SUCCESS:
            self.fail(function, status, device)

    @contextmanager
    def relaxed_about_captures(self) -> Iterator[None]:
        """Let this thread call what HIP forbids while another thread records a graph."""
        mode = ctypes.c_int(CAPTURE_MODE_RELAXED)
        self.call("hipThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            yield
        finally:
            # The exchange left the mode from before in its argument.
            self.call("hipThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def status_of(self, device: int, called: Callable[..., int], *args: Any) -> int:
        """What ``called`` returns while ``device`` is current; the current device is restored."""
        before = self.current_device()
        if before == device:
            return called(*args)
        self.call("hipSetDevice", device, device=device)
        try:
            return called(*args)
        finally:
            self.call("hipSetDevice", before, device=before)

    def status_on(self, device: int, function: str, *args: Any) -> int:
        """`status_of` the function of this name."""
        return self.status_of(device, self.api.function(function), *args)

    def on(self, device: int, function: str, *args: Any) -> None:
        """Call while ``device`` is current."""
        status = self.status_on(device, function, *args)
        if status != SUCCESS:
            self.fail(function, status, device)
