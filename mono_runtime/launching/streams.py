"""Streams as callers have them: raw addresses, torch's, FlyDSL's, or none."""

from __future__ import annotations

from mono_runtime.errors import ArgumentMismatch
from mono_runtime.launching.values import described

# HIP's hipStreamLegacy and hipStreamPerThread are the handles 1 and 2; with 0 these are streams of the
# calling thread's current device, whatever device a launch is for.
FIRST_OWN = 3


def raw_stream(stream: object, where: str) -> int:
    """The stream's address; None is the default stream, 0."""
    if stream is None:
        return 0
    if isinstance(stream, int) and not isinstance(stream, bool):
        if 0 <= stream < 1 << 64:
            return stream
        raise _refusal(stream, where)
    if hasattr(stream, "cuda_stream"):
        return raw_stream(stream.cuda_stream, where)
    held = getattr(stream, "value", stream)
    if held is stream:
        raise _refusal(stream, where)
    return raw_stream(held, where)


def check_stream(stream: object, device: int, where: str) -> None:
    """Raise `ArgumentMismatch` if ``stream`` says that it belongs to another device."""
    stream = getattr(stream, "value", stream)
    place = getattr(stream, "device", None)
    index = getattr(place, "index", None)
    if hasattr(stream, "cuda_stream") and index is not None and index != device:
        raise ArgumentMismatch(
            f"the stream belongs to device {index}, and the launch runs on device {device}",
            where=where,
            fix=f"pass a stream of device {device}",
        )


def _refusal(stream: object, where: str) -> ArgumentMismatch:
    return ArgumentMismatch(
        f"not a stream: {described(stream)}",
        where=where,
        fix="pass a raw stream (an address), torch.cuda.current_stream(), or None for the default one",
    )
