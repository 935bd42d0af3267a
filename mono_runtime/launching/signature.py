"""The caller's side of a launch plan: which arguments a call takes, in which order, and what is amiss."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from mono_runtime.errors import ArgumentMismatch
from mono_runtime.launch_plan import Argument, LaunchPlan
from mono_runtime.launching.streams import check_stream
from mono_runtime.launching.values import Converter, Value, check_value, converter, normalised


class _Unset:
    """The one value that stands for: not given."""

    def __repr__(self) -> str:
        return "unset"


UNSET = _Unset()


@dataclass(frozen=True, slots=True)
class Signature:
    """What a call has to give.

    Attributes:
        where: the launch, for messages.
        arguments: those that a call gives, in order.
        stream: the launcher's name for its stream, or None when it has none.
        bound: names that were fixed before and that a call cannot give again, for messages.
    """

    where: str
    arguments: tuple[Argument, ...]
    stream: str | None
    bound: frozenset[str] = frozenset()
    _positions: Mapping[str, int] = field(init=False, repr=False, compare=False)
    _converters: tuple[Converter, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        positions = {a.name: i for i, a in enumerate(self.arguments)}
        object.__setattr__(self, "_positions", positions)
        converters = tuple(converter(a, self.where) for a in self.arguments)
        object.__setattr__(self, "_converters", converters)

    @staticmethod
    def of(plan: LaunchPlan, where: str) -> Signature:
        """The signature of a launch whose arguments are all to be given."""
        return Signature(where, plan.arguments, plan.stream)

    def without(self, names: Collection[str], *, stream: bool) -> Signature:
        """The signature that is left when ``names``, and maybe the stream, have been fixed."""
        rest = tuple(a for a in self.arguments if a.name not in names)
        bound = self.bound | frozenset(names)
        if stream:
            bound |= {"stream", self.stream or "stream"}
        return Signature(self.where, rest, None if stream else self.stream, bound)

    def arrange(
        self, args: Sequence[object], named: Mapping[str, object], stream: object = None
    ) -> tuple[Sequence[object], object]:
        """The call's values in order, and its stream (None when none was given).

        ``stream`` is what was given as ``stream=``. It may instead stand last among ``args``, or in
        ``named`` under the launcher's own name for it.
        """
        if self.stream is not None and len(args) == len(self.arguments) + 1:
            args, stream = args[:-1], self._one_stream(args[-1], stream)
        if not named and len(args) == len(self.arguments):
            return args, stream
        if len(args) > len(self.arguments):
            raise self._mismatch(f"takes {self._count()} and was given {len(args)}")
        values: list[object] = [*args, *[UNSET] * (len(self.arguments) - len(args))]
        for name, value in named.items():
            if self._is_stream(name):
                stream = self._one_stream(value, stream)
                continue
            position = self.position(name)
            if position < len(args):
                raise self._mismatch(f"was given {name!r} both by position and by name")
            values[position] = value
        missing = [a.name for a, v in zip(self.arguments, values, strict=True) if v is UNSET]
        if missing:
            given = len(values) - len(missing)
            raise self._mismatch(
                f"takes {self._count()} and was given {given}; missing: {', '.join(missing)}"
            )
        return values, stream

    def separate_stream(
        self, fixed: Mapping[str, object], stream: object
    ) -> tuple[dict[str, object], object]:
        """What `bind` was given, with the stream (or `UNSET`) taken out of it; its names are checked."""
        rest = {}
        for name, value in fixed.items():
            if self._is_stream(name):
                stream = value if stream is UNSET else self._one_stream(value, stream)
            else:
                self.position(name)
                rest[name] = value
        if stream is not UNSET and "stream" in self.bound:
            raise self._mismatch("was given a stream and has it bound already")
        return rest, stream

    def position(self, name: str) -> int:
        """Where ``name`` stands; `ArgumentMismatch` when no argument, or one that is bound, has it."""
        position = self._positions.get(name)
        if position is None:
            known = "has it bound already" if name in self.bound else "does not have it"
            raise self._mismatch(f"was given {name!r} and {known}")
        return position

    def numbers(self, values: Sequence[object]) -> list[Value]:
        """Every value as a number; integers are not yet held against their types' ranges."""
        return [
            value if type(value) is int else convert(value)
            for convert, value in zip(self._converters, values, strict=True)
        ]

    def fixed_numbers(self, fixed: Mapping[str, object]) -> list[Value]:
        """A number for every argument: the one in ``fixed`` as its type holds it, or else 0."""
        return [
            normalised(a, convert(fixed[a.name]), self.where) if a.name in fixed else 0
            for a, convert in zip(self.arguments, self._converters, strict=True)
        ]

    def normalised(self, numbers: Sequence[Value]) -> list[Value]:
        """``numbers`` as their types hold them (integers signed); `ArgumentMismatch` if one does not fit."""
        return [
            normalised(argument, number, self.where)
            for argument, number in zip(self.arguments, numbers, strict=True)
        ]

    def check(self, values: Sequence[object], stream: object, device: int) -> None:
        """The full check of a call's ``values`` in order, tensors and stream included."""
        self.normalised(self.numbers(values))
        for argument, value in zip(self.arguments, values, strict=True):
            check_value(argument, value, device, self.where)
        check_stream(stream, device, self.where)

    def _is_stream(self, name: str) -> bool:
        return name == self.stream and name not in self._positions

    def _one_stream(self, given: object, other: object) -> object:
        if other is not None:
            raise self._mismatch("was given two streams, or one argument too many")
        return given

    def _count(self) -> str:
        return f"{len(self.arguments)} argument{'s' if len(self.arguments) != 1 else ''}"

    def _mismatch(self, what: str) -> ArgumentMismatch:
        taken = ", ".join(f"{a.name}: {a.type}" for a in self.arguments) or "no arguments"
        stream = f", then its stream {self.stream!r}" if self.stream else ""
        return ArgumentMismatch(
            f"the launch {what}", where=self.where, fix=f"it takes, in this order: {taken}{stream}"
        )


def require_signature(
    plan: LaunchPlan, expected: Sequence[str] | Sequence[tuple[str, str]], *, where: str
) -> None:
    """Raise `ArgumentMismatch`, with both lists, unless ``plan`` has the ``expected`` arguments in order.

    ``expected`` are names, or (name, type) pairs, of what the caller is going to pass, without the stream.
    These kernels' loads have no bounds: an argument in the wrong place reads garbage and does not fault.
    """
    wanted = [item if isinstance(item, str) else f"{item[0]}: {item[1]}" for item in expected]
    typed = any(not isinstance(item, str) for item in expected)
    held = [f"{a.name}: {a.type}" if typed else a.name for a in plan.arguments]
    if wanted == held:
        return
    first = next(
        (i for i, (a, b) in enumerate(zip(wanted, held, strict=False)) if a != b),
        min(len(wanted), len(held)),
    )
    raise ArgumentMismatch(
        f"the caller's arguments are not those of the launch; they differ from number {first + 1} on\n"
        f"  caller ({len(wanted)}): {', '.join(wanted)}\n"
        f"  launch ({len(held)}): {', '.join(held)}",
        where=where,
        fix="rebuild the store from the kernels that the caller belongs to",
    )
