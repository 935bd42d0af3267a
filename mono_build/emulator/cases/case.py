"""A case: buffers and arguments of launches on every rank, and the checks of what they leave.

A case is data, made for one architecture by a family's generator (`Family.cases`, a function of the
launch key and a seed). Whoever runs it (`cases.run`) allocates each rank's buffers on a device, writes
their parts, runs the steps in order, each step's calls on all ranks together, and lets each step check
the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from mono_build.emulator.cases.compare import Comparison
from mono_runtime.errors import InvalidValue
from mono_runtime.launch_key import Scalar

BuildKey = Mapping[str, Scalar]


class NoCase(InvalidValue):
    """There is no reference for a launch, or for this build of it."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a buffer's byte ``offset``; of the caller's own rank unless ``rank`` is given."""

    buffer: str
    offset: int = 0
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Content of a buffer from byte ``offset`` on: a contiguous tensor, or a function that makes it.

    A function is called once, when the part is written: large weights exist only for that moment.
    """

    offset: int
    content: Tensor | Callable[[], Tensor]

    def tensor(self) -> Tensor:
        """The content."""
        return self.content if isinstance(self.content, Tensor) else self.content()


@dataclass(frozen=True, slots=True)
class Buffer:
    """One allocation.

    Attributes:
        size: bytes.
        parts: what is written into it.
        fill: the byte that everything is set to before; None when no launch reads beyond the parts,
            so that memory may stay untouched.
        table: addresses (64 bits each) that the buffer begins with.
        uncached: whether other devices read it while a launch runs.
    """

    size: int
    parts: tuple[Part, ...] = ()
    fill: int | None = None
    table: tuple[Address, ...] = ()
    uncached: bool = False


def holding(tensor: Tensor) -> Buffer:
    """A buffer with exactly this content."""
    return Buffer(tensor.numel() * tensor.element_size(), (Part(0, tensor),))


def zeros(size: int) -> Buffer:
    """A buffer of zeros."""
    return Buffer(size, fill=0)


@dataclass(frozen=True, slots=True)
class Call:
    """One launch on one rank: which build of it, and every argument by its name in the launch plan.

    Numbers are as the runtime takes them: integers, or ctypes scalars such as ``c_float``.
    """

    rank: int
    launch: str
    build: BuildKey
    arguments: Mapping[str, object]


class Memory(Protocol):
    """What a check reads with."""

    def read(self, rank: int, buffer: str, offset: int, size: int) -> Tensor:
        """``size`` bytes of a rank's buffer as a uint8 tensor."""


Check = Callable[[Memory], list[Comparison]]


@dataclass(frozen=True, slots=True)
class Step:
    """Launches that run together, and what memory must hold afterwards."""

    calls: tuple[Call, ...]
    check: Check


@dataclass(frozen=True, slots=True)
class Case:
    """Attributes:
    name: what is tried, in words.
    arch: the architecture that the content is made for.
    seed: what the random content was made from.
    buffers: each rank's buffers by name.
    varies: whether what the checks read may depend on the order in which waves run. Then each run
        has to pass, and runs need not be equal.
    """

    name: str
    family: str
    arch: str
    seed: int
    buffers: tuple[Mapping[str, Buffer], ...]
    steps: tuple[Step, ...] = field(repr=False)
    varies: bool = False

    @property
    def ranks(self) -> int:
        """How many devices take part."""
        return len(self.buffers)
