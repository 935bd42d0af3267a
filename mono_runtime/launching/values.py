"""One value of a call: turned into the number that its argument's type can hold, or refused by name."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable
from typing import Any

from mono_runtime.errors import ArgumentMismatch
from mono_runtime.launch_plan import TYPE_BYTES, Argument

Value = int | float
Converter = Callable[[object], Value]
_FLOATS = ("f32", "f64")
# A device address takes 64 bits, so a tensor can stand for its address in these types alone.
ADDRESSES = ("i64", "ptr")


def converter(argument: Argument, where: str) -> Converter:
    """What makes a number of any value that is given for ``argument``; refusals raise `ArgumentMismatch`.

    Integers come back as they were given; `normalised` holds them against the type's range.
    """
    if argument.type in _FLOATS:
        return lambda value: _to_float(argument, value, where)
    if argument.type not in ADDRESSES:
        return lambda value: _to_integer(argument, value, where)

    def to_address(value: Any) -> Value:
        # Before __index__: an integer tensor of one element has both, and means its address.
        try:
            address = value.data_ptr
        except AttributeError:
            return _to_integer(argument, value, where)
        return address()  # type: ignore[no-any-return]

    return to_address


def _to_integer(argument: Argument, value: Any, where: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        pass
    if not is_stream(value):
        try:
            return operator.index(getattr(value, "value", None))  # type: ignore[arg-type]
        except TypeError:
            pass
    raise _refusal(argument, value, where)


def _to_float(argument: Argument, value: Any, where: str) -> float:
    held = getattr(value, "value", value)
    # A tensor's number lies on the device: reading it here would wait for the stream.
    if hasattr(value, "data_ptr") or not (hasattr(held, "__float__") or hasattr(held, "__index__")):
        raise _refusal(argument, value, where)
    return float(held)


def is_stream(value: object) -> bool:
    """Whether ``value`` is a stream of torch or FlyDSL: one in an argument's place means a shifted call."""
    return hasattr(value, "cuda_stream") or hasattr(value, "_is_stream_param")


def _refusal(argument: Argument, value: object, where: str) -> ArgumentMismatch:
    if argument.type in _FLOATS:
        takes = "pass a number"
    elif argument.type in ADDRESSES:
        takes = "pass an integer, or an object with data_ptr() such as a tensor"
    else:
        takes = "pass an integer (a tensor stands for its address, which needs i64)"
    return ArgumentMismatch(
        f"argument {argument.name!r} is of type {argument.type} and cannot take {described(value)}",
        where=where,
        fix=takes,
    )


def described(value: object) -> str:
    """``value`` for a message: its type and a short form of it."""
    kind = type(value).__name__
    if hasattr(value, "data_ptr"):
        # A tensor's own text shows its elements, which would have to come from the device.
        return f"{kind} of shape {tuple(getattr(value, 'shape', ()))}"
    text = repr(value)
    return f"{kind} {text if len(text) <= 60 else text[:57] + '...'}"


def normalised(argument: Argument, value: Value, where: str) -> Value:
    """``value`` as the type holds it: integers signed, floats checked.

    The plan's integers have no sign, as LLVM's: n bits take -2**(n-1) to 2**n - 1.
    """
    if argument.type == "f32":
        try:
            struct.pack("<f", value)
        except OverflowError as error:
            raise ArgumentMismatch(
                f"argument {argument.name!r} = {value!r} does not fit in f32",
                where=where,
                fix="pass a number of at most 3.4028235e+38, or infinity",
            ) from error
        return value
    if argument.type == "f64":
        return value
    bits = 8 * TYPE_BYTES[argument.type]
    number = int(value)
    if not -(1 << (bits - 1)) <= number < 1 << bits:
        raise ArgumentMismatch(
            f"argument {argument.name!r} = {number} does not fit in {argument.type}",
            where=where,
            fix=f"pass an integer from {-(1 << (bits - 1))} to {(1 << bits) - 1}",
        )
    return number - (1 << bits) if number >> (bits - 1) > 0 else number


def check_value(argument: Argument, value: object, device: int, where: str) -> None:
    """What converting cannot see: memory that a kernel on ``device`` cannot read, and likely mistakes.

    Looks at tensors' devices and memory and refuses bools, which calls take as 0 and 1 but which
    usually are a build parameter in an argument's place.
    """
    if isinstance(value, bool):
        raise ArgumentMismatch(
            f"argument {argument.name!r} is of type {argument.type} and was given {value}",
            where=where,
            fix=f"pass {int(value)} if that is meant; a bool is often a build parameter",
        )
    if argument.type not in ADDRESSES or not hasattr(value, "data_ptr"):
        return
    place = getattr(value, "device", None)
    kind = getattr(place, "type", None)
    if kind is not None and (kind != "cuda" or place.index != device):  # type: ignore[union-attr]
        raise ArgumentMismatch(
            f"argument {argument.name!r} is a tensor on {place}, and the launch runs on device {device}",
            where=where,
            fix=f"pass a tensor on cuda:{device}",
        )
    if value.data_ptr() == 0:
        raise ArgumentMismatch(
            f"argument {argument.name!r} is a tensor without memory: {described(value)}",
            where=where,
            fix="allocate it before the call, or pass 0 where the kernel takes none",
        )
