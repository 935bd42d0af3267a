"""Launches with arguments that were fixed: packed once, so that a call writes only what moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from mono_runtime.launch_plan import Argument
from mono_runtime.launching.dispatcher import Dispatcher
from mono_runtime.launching.generated import Shape, Write, call_maker
from mono_runtime.launching.signature import UNSET
from mono_runtime.launching.slots import Slot, SlotPool
from mono_runtime.launching.streams import FIRST_OWN

if TYPE_CHECKING:
    from mono_runtime.launching.launch import Launch

# Formats of the views that single values are written through. "P" takes what a signless 64-bit integer
# does, and unlike the others it never reads an integer tensor's element through __index__.
_VIEWS = {"i8": "b", "i16": "h", "i32": "i", "i64": "P", "ptr": "P"}


class BoundLaunch(Protocol):
    """A launch with fixed arguments: a plain function with attributes, as Python calls those fastest.

    It takes the arguments that were not bound, by position in launch order or by name, and the stream as a
    `Launch` does unless that was bound too. Threads and graph captures are as for a `Launch`.

    Attributes:
        launch: what it was bound from.
        arguments: what a call gives, in order.
    """

    launch: Launch
    arguments: tuple[Argument, ...]

    def __call__(self, /, *args: object, **named: object) -> None:
        """Launch; the errors are those of `Launch.__call__`."""

    def bind(self, /, *, stream: object = UNSET, **fixed: object) -> BoundLaunch:
        """Fix more arguments; what was fixed before stays."""

    def check(self, /, *args: object, **named: object) -> None:
        """Check a call without launching it, with what was fixed, as `Launch.check` does."""


class Binding:
    """The fixed values of a bound launch, and slots in which they have been written.

    Attributes:
        signature: what a call still has to give.
        formats: formats of the slots' views.
        writes: where a call's values go; None when calls have to go the careful way.
    """

    __slots__ = (
        "__weakref__",
        "_always_check",
        "_dispatcher",
        "_fixed",
        "_moving",
        "_numbers",
        "_packed",
        "_pool",
        "_stream",
        "formats",
        "signature",
        "writes",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        fixed: Mapping[str, object],
        stream: object,
        *,
        always_check: bool,
    ) -> None:
        """Convert and pack what is fixed.

        Args:
            fixed: values by argument name; the names are known to be right.
            stream: the stream, or `UNSET` if calls give it.
        """
        whole = dispatcher.signature
        self._dispatcher = dispatcher
        self._always_check = always_check
        # Also what keeps fixed tensors and a stream object alive.
        self._fixed = dict(fixed)
        self._stream = stream
        self.signature = whole.without(fixed, stream=stream is not UNSET)
        self._moving = tuple(whole.position(a.name) for a in self.signature.arguments)
        self._numbers = whole.fixed_numbers(fixed)
        self.formats, self.writes = self._layout()
        self._packed = b""
        if self.writes is not None:
            buffer = bytearray(dispatcher.packing.dispatch.kernarg_size)
            dispatcher.pack(buffer, self._numbers)
            self._packed = bytes(buffer)
        self._pool = SlotPool(dispatcher.where)

    def extended(self, fixed: Mapping[str, object], stream: object) -> Binding:
        """A binding that fixes these beside what this one does; a name that it cannot fix is refused."""
        fixed, stream = self.signature.separate_stream(fixed, stream)
        return Binding(
            self._dispatcher,
            {**self._fixed, **fixed},
            self._stream if stream is UNSET else stream,
            always_check=self._always_check,
        )

    def call(self) -> Callable[..., None]:
        """The function that launches."""
        if self.writes is None:
            return self._careful_call()
        raw = None if self._stream is UNSET else self._dispatcher.stream(self._stream)
        if raw is None:
            place = "last" if self.signature.stream else "named"
        else:
            place = "default" if raw < FIRST_OWN and self._dispatcher.several_devices else "bound"
        make = call_maker(Shape(len(self._moving), self.writes, place))  # type: ignore[arg-type]
        return make(
            pop=self._pool.pop,
            push=self._pool.push,
            new=self._new_slot,
            raw=self._dispatcher.stream,
            careful=self._irregular,
            tick=self._dispatcher.counter.tick,
            bound=raw,
            unset=UNSET,
        )

    def launch(self, args: Sequence[object], named: Mapping[str, object], stream: object) -> None:
        """The careful way: any form of call, with an error that says what is wrong."""
        values, stream = self._arranged(args, named, stream)
        if self._always_check:
            self._check(values, stream)
        numbers = list(self._numbers)
        for position, number in zip(self._moving, self.signature.numbers(values), strict=True):
            numbers[position] = number
        self._dispatcher.launch(numbers, self._dispatcher.stream(stream))

    def check(self, args: Sequence[object], named: Mapping[str, object], stream: object) -> None:
        """The full check of a call, and of what is fixed."""
        self._check(*self._arranged(args, named, stream))

    def close(self) -> None:
        """Let go of the slots, and of what was kept alive."""
        self._pool.close()
        self._fixed.clear()

    def _arranged(
        self, args: Sequence[object], named: Mapping[str, object], stream: object
    ) -> tuple[Sequence[object], object]:
        if self._stream is UNSET:
            return self.signature.arrange(args, named, stream)
        if stream is not None:
            named = {**named, "stream": stream}
        values, _ = self.signature.arrange(args, named)
        return values, self._stream

    def _check(self, values: Sequence[object], stream: object) -> None:
        whole = self._dispatcher.signature
        every = dict(self._fixed)
        every.update(zip((a.name for a in self.signature.arguments), values, strict=True))
        whole.check([every[a.name] for a in whole.arguments], stream, self._dispatcher.device)
        self._dispatcher.stream(stream)

    def _irregular(
        self,
        values: Sequence[object],
        rest: Sequence[object],
        named: Mapping[str, object],
        stream: object,
    ) -> None:
        """A call that the generated function did not take: values that are unset come last, if any."""
        args = [v for v in values if v is not UNSET]
        if tuple(rest) != (None,):
            args += rest
        self.launch(args, named, stream)

    def _careful_call(self) -> Callable[..., None]:
        launch = self.launch

        def call(*args: object, stream: object = None, **named: object) -> None:
            launch(args, named, stream)

        return call

    def _new_slot(self) -> Slot:
        self._pool.require_open()
        return self._pool.add(self._dispatcher.slot(bytearray(self._packed), self.formats))

    def _layout(self) -> tuple[tuple[str, ...], tuple[Write, ...] | None]:
        packing = self._dispatcher.packing
        if self._dispatcher.plain_pack is None or packing.sources is None or self._always_check:
            return (), None
        if not set(self._moving) <= set(packing.sources):
            # Nothing would look at an argument that no kernel argument is made of.
            return (), None
        formats: list[str] = []
        writes: list[Write] = []
        for argument, source in zip(packing.fields, packing.sources, strict=True):
            if source not in self._moving:
                continue
            code = _VIEWS.get(argument.type)
            if code is None:
                # A view would store a float that is too large as infinity.
                return (), None
            if code not in formats:
                formats.append(code)
            element = argument.offset // argument.size
            writes.append((formats.index(code), element, self._moving.index(source)))
        return tuple(formats), tuple(writes)


def bound_launch(
    binding: Binding, launch: Launch, register: Callable[[Binding], BoundLaunch]
) -> BoundLaunch:
    """The function that callers get; ``register`` makes one of a further binding."""

    def bind(*, stream: object = UNSET, **fixed: object) -> BoundLaunch:
        return register(binding.extended(fixed, stream))

    def check(*args: object, stream: object = None, **named: object) -> None:
        binding.check(args, named, stream)

    call: Any = binding.call()
    names = ", ".join(a.name for a in binding.signature.arguments)
    call.__name__ = call.__qualname__ = f"{launch.key.launch}({names})"
    call.__doc__ = f"{launch.key}, on which everything is fixed but: {names or 'nothing'}"
    call.launch = launch
    call.arguments = binding.signature.arguments
    call.bind = bind
    call.check = check
    return cast(BoundLaunch, call)
