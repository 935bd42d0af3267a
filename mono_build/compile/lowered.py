"""A lowered launch as plain data: what is left of FlyDSL's MLIR once its one adapter has read it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Signature:
    """The launcher's parameters in calling order; ``stream`` names the stream among them, if any."""

    parameters: tuple[str, ...]
    stream: str | None


@dataclass(frozen=True, slots=True)
class HostOperation:
    """One operation of the host function.

    Attributes:
        name: MLIR name, e.g. ``llvm.add``.
        operands: numbers of the values it reads.
        result: number of the value it makes, or None.
        result_type: that value's type as MLIR prints it.
        value: an integer constant's value, or a comparison's predicate number.
    """

    name: str
    operands: tuple[int, ...]
    result: int | None = None
    result_type: str = ""
    value: int | None = None


@dataclass(frozen=True, slots=True)
class HostLaunch:
    """One ``gpu.launch_func``; every field but the names is a value number."""

    binary: str
    symbol: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_lds: int | None
    operands: tuple[int, ...]
    stream: int | None
    clustered: bool
    asynchronous: bool


@dataclass(frozen=True, slots=True)
class HostFunction:
    """The one entry function: its arguments are the values 0 .. n-1, then come the operations' results."""

    argument_types: tuple[str, ...]
    body: tuple[HostOperation | HostLaunch, ...]


@dataclass(frozen=True, slots=True)
class LoweredLaunch:
    """The lowered module: the host function, and each GPU binary's ELF by its module name."""

    signature: Signature
    host: HostFunction
    binaries: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class TracedLaunch:
    """What tracing gave, before lowering: the IR without source locations, and what will lower it."""

    ir: str
    pipeline: tuple[str, ...]
    options: str
