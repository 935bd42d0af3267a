"""A loaded launch, called as FlyDSL's launcher was."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from operator import countOf

from mono_runtime.driver import Driver
from mono_runtime.launch_key import LaunchKey
from mono_runtime.launch_plan import Argument, LaunchPlan
from mono_runtime.launching.binding import Binding, BoundLaunch, bound_launch
from mono_runtime.launching.dispatcher import Dispatcher
from mono_runtime.launching.signature import UNSET, Signature
from mono_runtime.launching.slots import Slot
from mono_runtime.launching.streams import FIRST_OWN

# Not the length of any call.
_NEVER = -2
# What a plain call uses, together so that it is looked up at once: how many arguments it has, taking a slot
# and giving it back, packing, and the counter.
_Quick = tuple[
    int, Callable[[], Slot], Callable[[Slot], None], Callable[..., None], Iterator[object]
]


class Launch:
    """One launch on one device.

    A call gives the arguments by position or by name, as Python calls do, and the stream as ``stream=``,
    under the launcher's own name for it, or as the last positional argument. Integers are taken as they
    are; what has ``data_ptr()`` (a tensor) stands for its address in 64-bit arguments, what has
    ``__index__`` or holds a number in ``.value`` for that number. An n-bit integer takes -2**(n-1) to
    2**n - 1, and a bool counts as 0 or 1. A stream is a raw address, torch's, FlyDSL's, or None for the
    default one.

    Count, names, types and ranges are checked on every call, before anything reaches the device. `check`
    looks at tensors too. Calls may come from any thread and inside a graph capture: the driver copies the
    kernargs before a call returns, and a call neither loads nor allocates anything on the device.

    A launch whose first call consists of integers alone packs the following ones as they are, until one
    does not pack. That is where it differs from looking at each value: an integer tensor of one element
    has ``__index__``, so it would be read instead of addressed. Give a launch tensors from its first call
    on, or addresses; a `bind` result, and a launch with ``always_check``, take either at any time.

    Attributes:
        key: what was asked for.
        plan: its host side.
        device: ordinal of the device.
        always_check: whether every call does the full `check`.
    """

    __slots__ = (
        "__weakref__",
        "_bindings",
        "_dispatcher",
        "_lock",
        "_new",
        "_quick",
        "_raw",
        "_stream_last",
        "_trusting",
        "always_check",
        "device",
        "key",
        "plan",
        "released",
        "signature",
    )

    def __init__(
        self,
        key: LaunchKey,
        plan: LaunchPlan,
        device: int,
        driver: Driver,
        functions: Sequence[int],
        *,
        on_call: Callable[[], object] | None = None,
        always_check: bool = False,
    ) -> None:
        """Get ready to launch ``plan``.

        Args:
            functions: the driver's handle of each dispatch's kernel, in order.
            on_call: called after every call that was submitted, on the caller's thread.

        Raises:
            InvalidValue: the plan's constant grid is none, or the functions are not those of the plan.
        """
        self.key = key
        self.plan = plan
        self.device = device
        self.always_check = always_check
        self.released = False
        self._dispatcher = Dispatcher(str(key), plan, device, driver, functions, on_call)
        self.signature: Signature = self._dispatcher.signature
        self._lock = threading.Lock()
        self._bindings: weakref.WeakSet[Binding] = weakref.WeakSet()
        self._new = self._dispatcher.new_slot
        self._raw = self._dispatcher.stream
        self._stream_last = plan.stream is not None
        self._trusting = self._dispatcher.plain_pack is not None and not always_check
        self._quick = self._quick_for(_NEVER)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """What a call takes, in order."""
        return self.plan.arguments

    @property
    def calls(self) -> int:
        """Calls that were submitted, through this launch and through those bound from it."""
        return self._dispatcher.counter.value

    def __call__(self, /, *args: object, stream: object = None, **named: object) -> None:
        """Launch.

        Raises:
            ArgumentMismatch: the call does not fit the launch; nothing reached the device.
            Released: the launch was closed.
            DriverError: the driver refused it.
        """
        count, pop, push, pack, tick = self._quick
        if named or len(args) != count:
            if named or stream is not None or len(args) != count + 1 or not self._stream_last:
                return self._launch(args, named, stream)
            args, stream = args[:-1], args[-1]
        if type(stream) is not int or stream < FIRST_OWN:
            stream = self._raw(stream)
        try:
            slot = pop()
        except IndexError:
            slot = self._new()
        submit = slot.submit
        try:
            pack(slot.buffer, 0, *args)
        except Exception:
            # Whatever it was, the careful way launches the call or says what is wrong with it.
            push(slot)
            return self._launch(args, named, stream)
        try:
            submit(stream)
        finally:
            push(slot)
        next(tick)
        return None

    def check(self, /, *args: object, stream: object = None, **named: object) -> None:
        """Check a call without launching it, tensors included.

        Beside what every call is checked for, tensors have to lie on the launch's device and have memory,
        a stream has to be of that device, and bools are refused. Strided views are allowed: kernels take
        addresses.

        Raises:
            ArgumentMismatch: names the argument, its type and what it was given.
        """
        values, stream = self.signature.arrange(args, named, stream)
        self.signature.check(values, stream, self.device)
        self._raw(stream)

    def bind(self, /, *, stream: object = UNSET, **fixed: object) -> BoundLaunch:
        """A callable for the arguments that are not in ``fixed``, in launch order or by name.

        What is fixed is converted and packed once; a call writes only what moves. Tensors among it, and
        the stream, stay alive as long as the result does. Without ``stream`` a call of the result gives it.

        Raises:
            ArgumentMismatch: an unknown name, or a value that does not fit.
            Released: the launch was closed.
        """
        fixed, stream = self.signature.separate_stream(fixed, stream)
        return self._bound(Binding(self._dispatcher, fixed, stream, always_check=self.always_check))

    def close(self) -> None:
        """Give the buffers up; calls of this launch and of what was bound from it raise `Released`.

        No call may be running. Modules and functions belong to whoever loaded them.
        """
        with self._lock:
            self.released = True
            bindings = list(self._bindings)
        self._dispatcher.close()
        for binding in bindings:
            binding.close()

    def __repr__(self) -> str:
        state = " closed" if self.released else ""
        return (
            f"<Launch {self.key} on device {self.device}, {len(self.arguments)} arguments{state}>"
        )

    def _launch(self, args: Sequence[object], named: dict[str, object], stream: object) -> None:
        """The careful way: any form of call, with an error that says what is wrong."""
        values, stream = self.signature.arrange(args, named, stream)
        if self.always_check:
            self.signature.check(values, stream, self.device)
        numbers = self.signature.numbers(values)
        raw = self._raw(stream)
        if self._trusting:
            self._settle(values)
        self._dispatcher.launch(numbers, raw)

    def _settle(self, values: Sequence[object]) -> None:
        """Pack later calls as they are, once a call of integers alone has come and until another comes."""
        if countOf(map(type, values), int) == len(values):
            self._quick = self._quick_for(len(values))
        else:
            self._trusting = False
            self._quick = self._quick_for(_NEVER)

    def _quick_for(self, count: int) -> _Quick:
        dispatcher = self._dispatcher
        pack = dispatcher.plain_pack or dispatcher.pack
        return (count, dispatcher.pool.pop, dispatcher.pool.push, pack, dispatcher.counter.tick)

    def _bound(self, binding: Binding) -> BoundLaunch:
        with self._lock:
            self._dispatcher.pool.require_open()
            self._bindings.add(binding)
        return bound_launch(binding, self, self._bound)
