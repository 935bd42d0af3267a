"""Submitting a launch's dispatches in order, once every value of the call is known to fit."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from mono_runtime.driver import Driver, Submit
from mono_runtime.errors import ArgumentMismatch, InvalidValue
from mono_runtime.launch_plan import LaunchPlan
from mono_runtime.launching.counting import CallCounter
from mono_runtime.launching.packing import Geometry, Pack, Packing, packing
from mono_runtime.launching.signature import Signature
from mono_runtime.launching.slots import Slot, SlotPool
from mono_runtime.launching.streams import FIRST_OWN, raw_stream
from mono_runtime.launching.values import Value

# Grids that are computed come from few widths; beyond this many, prepared launches are made anew.
_KEPT_GEOMETRIES = 64


class _Lane:
    """One dispatch's buffer, and its prepared launches by grid."""

    __slots__ = ("buffer", "submits")

    def __init__(self, size: int) -> None:
        self.buffer = bytearray(size)
        self.submits: dict[Geometry, Submit] = {}


class Dispatcher:
    """A launch plan on one device: from numbers in calling order to kernels on a stream.

    Attributes:
        where: the launch, for messages.
        device: ordinal of the device.
        signature: of a call that gives every argument.
        plain_pack: packs a whole call when the launch is *plain*: one dispatch, a constant grid, and
            kernel arguments that are copies of the caller's, as in all of vLLM's launches. Else None.
        pool: slots of a plain launch.
        counter: calls that were submitted.
        several_devices: whether a default stream may be that of another device.
    """

    __slots__ = (
        "_driver",
        "_functions",
        "_lanes",
        "_packings",
        "counter",
        "device",
        "plain_pack",
        "pool",
        "several_devices",
        "signature",
        "where",
    )

    def __init__(
        self,
        where: str,
        plan: LaunchPlan,
        device: int,
        driver: Driver,
        functions: Sequence[int],
        on_call: Callable[[], object] | None,
    ) -> None:
        if len(functions) != len(plan.dispatches):
            raise InvalidValue(
                f"{len(functions)} functions for a plan of {len(plan.dispatches)} dispatches",
                where=where,
                fix="give the function of every dispatch, in order",
            )
        self.where = where
        self.device = device
        self.signature = Signature.of(plan, where)
        self.counter = CallCounter(on_call)
        self.several_devices = driver.device_count() > 1
        self._driver = driver
        self._functions = tuple(functions)
        self._packings = tuple(packing(d, plan.arguments, where) for d in plan.dispatches)
        first = self._packings[0]
        plain = len(self._packings) == 1 and first.geometry is not None
        self.plain_pack: Pack | None = first.pack if plain else None
        self.pool = SlotPool(where)
        self._lanes: list[tuple[_Lane, ...]] = []

    @property
    def packing(self) -> Packing:
        """How a plain launch's dispatch is filled."""
        return self._packings[0]

    def new_slot(self) -> Slot:
        """One more slot of the pool; `Released` after `close`."""
        self.pool.require_open()
        return self.pool.add(self.slot(bytearray(self.packing.dispatch.kernarg_size)))

    def slot(self, buffer: bytearray, formats: Sequence[str] = ()) -> Slot:
        """A plain launch's slot over ``buffer``, with a view of it in each of ``formats``."""
        geometry = self.packing.geometry_of({})
        views = []
        for code in formats:
            view = memoryview(buffer)
            whole = len(view) - len(view) % struct.calcsize(code)
            views.append(view[:whole].cast(code))  # type: ignore[call-overload]
        return Slot(buffer, self._prepare(0, geometry, buffer), tuple(views))

    def stream(self, stream: object) -> int:
        """The raw stream; a default stream has to be that of the launch's device."""
        raw = raw_stream(stream, self.where)
        if raw < FIRST_OWN and self.several_devices:
            current = self._driver.current_device()
            if current != self.device:
                raise ArgumentMismatch(
                    f"the default stream is that of this thread's current device {current},"
                    f" and the launch runs on device {self.device}",
                    where=self.where,
                    fix=f"pass a stream of device {self.device}, or make that device current first",
                )
        return raw

    def launch(self, numbers: Sequence[Value], stream: int) -> None:
        """Hold ``numbers`` against their types, then submit every dispatch and count the call."""
        if self.plain_pack is not None:
            self._launch_plain(numbers, stream)
        else:
            self._launch_computed(self.signature.normalised(numbers), stream)
        next(self.counter.tick)

    def pack(self, buffer: bytearray, numbers: Sequence[Value]) -> None:
        """Write a plain launch's call to ``buffer``; `ArgumentMismatch` if a number does not fit."""
        if self.plain_pack is None:
            raise InvalidValue("the launch is not plain", where=self.where)
        try:
            self.plain_pack(buffer, 0, *numbers)
        except (struct.error, OverflowError):
            # Packing is for signed integers: what is left is unsigned, or does not fit.
            self.plain_pack(buffer, 0, *self.signature.normalised(numbers))

    def close(self) -> None:
        """Every later call raises `Released`."""
        self.pool.close()

    def _launch_plain(self, numbers: Sequence[Value], stream: int) -> None:
        try:
            slot = self.pool.pop()
        except IndexError:
            slot = self.new_slot()
        try:
            self.pack(slot.buffer, numbers)
            slot.submit(stream)
        finally:
            self.pool.push(slot)

    def _launch_computed(self, numbers: Sequence[Value], stream: int) -> None:
        named = {a.name: n for a, n in zip(self.signature.arguments, numbers, strict=True)}
        self.pool.require_open()
        try:
            lanes = self._lanes.pop()
        except IndexError:
            lanes = tuple(_Lane(p.dispatch.kernarg_size) for p in self._packings)
        try:
            # All are filled before the first is submitted: a value that does not fit launches nothing.
            for submit in [self._filled(i, lane, named) for i, lane in enumerate(lanes)]:
                submit(stream)
        finally:
            self._lanes.append(lanes)

    def _filled(self, index: int, lane: _Lane, named: dict[str, Value]) -> Submit:
        packing = self._packings[index]
        packing.fill(lane.buffer, named)
        geometry = packing.geometry_of(named)
        submit = lane.submits.get(geometry)
        if submit is None:
            if len(lane.submits) >= _KEPT_GEOMETRIES:
                lane.submits.clear()
            submit = lane.submits[geometry] = self._prepare(index, geometry, lane.buffer)
        return submit

    def _prepare(self, index: int, geometry: Geometry, buffer: bytearray) -> Submit:
        return self._driver.prepare(
            self.device,
            self._functions[index],
            geometry.grid,
            geometry.block,
            geometry.dynamic_lds,
            buffer,
        )
