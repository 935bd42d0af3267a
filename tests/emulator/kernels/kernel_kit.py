"""Launches of the test kernels' store on emulated devices: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mono_build.emulator.driver import EmulatedDriver
from mono_build.emulator.engine import Schedule
from mono_runtime.artefact import Artefact
from mono_runtime.launching.launch import Launch
from mono_runtime.oci import StoreReader

ARCHITECTURES = ("gfx942", "gfx950")
# What FlyDSL calls the architecture's own 8-bit format, as torch does.
FP8 = {"gfx942": torch.float8_e4m3fnuz, "gfx950": torch.float8_e4m3fn}
_STORED_AS = {torch.bfloat16: torch.int16, **dict.fromkeys(FP8.values(), torch.uint8)}


class Devices:
    """Emulated devices of one process, with the test kernels loaded on demand."""

    def __init__(
        self, store: Path, *architectures: str, schedule: Schedule | None = None, wait: float = 30.0
    ) -> None:
        self.driver = EmulatedDriver(architectures, schedule=schedule, wait=wait)
        # A default stream is that of the thread's current device, so each device has one of its own.
        self._streams = [self.driver.create_stream(d) for d in range(len(architectures))]
        self._reader = StoreReader.open(store)
        self._architectures = architectures
        self._entries = {(e.key.arch, e.key.launch): e for e in self._reader.index.entries}

    def artefact(self, name: str, arch: str) -> Artefact:
        """The launch ``name`` of an architecture, as it is stored."""
        return self._reader.artefact(self._entries[arch, name].artefact)

    def code(self, name: str, arch: str) -> bytes:
        """The launch's one code object."""
        (code,) = self.artefact(name, arch).code_objects
        return self._reader.blob(code.digest)

    def launch(self, name: str, device: int = 0, code: bytes | None = None) -> Callable[..., None]:
        """The launch ``name`` on a device, with other bytes for its code object when they are given."""
        arch = self._architectures[device]
        plan = self.artefact(name, arch).plan
        module = self.driver.load_module(device, code or self.code(name, arch))
        functions = [self.driver.function(module, d.symbol) for d in plan.dispatches]
        launch = Launch(self._entries[arch, name].key, plan, device, self.driver, functions)
        return partial(launch, stream=self._streams[device])

    def array(self, values: torch.Tensor, device: int = 0, *, room: int = 0) -> int:
        """The address of a copy of ``values`` with ``room`` poisoned bytes behind it."""
        data = _bytes(values)
        address = self.driver.allocate(device, len(data) + room)
        self.driver.write(device, address, data + b"\xa5" * room)
        return address

    def poisoned(self, size: int, device: int = 0) -> int:
        """The address of ``size`` bytes that nobody has written: as f32 and as bf16, large NaN-free numbers."""
        address = self.driver.allocate(device, size)
        self.driver.fill(device, address, 0x7B, size)
        return address

    def read(self, address: int, like: torch.Tensor, device: int = 0) -> torch.Tensor:
        """What lies at ``address``, of ``like``'s shape and type, after all launches have ended."""
        self.driver.synchronize(device)
        size = like.numel() * like.element_size()
        data = np.frombuffer(self.driver.read(device, address, size), np.uint8)
        return torch.from_numpy(data.copy()).view(like.dtype).reshape(like.shape)


def _bytes(values: torch.Tensor) -> bytes:
    plain = values.contiguous().view(_STORED_AS.get(values.dtype, values.dtype))
    return bytes(plain.numpy().tobytes())


def worst(got: torch.Tensor, expected: torch.Tensor, tolerance: torch.Tensor) -> float:
    """The largest error in units of its tolerance: at most 1 is right. NaN counts as infinite."""
    error = (got.to(torch.float64) - expected.to(torch.float64)).abs() / tolerance
    return float(torch.nan_to_num(error, nan=float("inf")).max())


def generator(seed: int) -> torch.Generator:
    """Reproducible numbers."""
    made = torch.Generator()
    made.manual_seed(seed)
    return made


def normal(*shape: int, seed: int, **options: Any) -> torch.Tensor:
    """Standard normal f32 numbers."""
    return torch.randn(shape, generator=generator(seed), **options)
