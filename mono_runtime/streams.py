"""The stream that the calling thread works on, as torch sees it, and whether it records a graph."""

from __future__ import annotations

import sys

from mono_runtime.driver import Driver
from mono_runtime.errors import CaptureActive


def current_stream(device: int) -> int:
    """The raw stream of torch's current stream on ``device``; 0, the default stream, without torch.

    torch is asked only when it is loaded, made for HIP and has touched a device already.
    """
    torch = sys.modules.get("torch")
    if torch is None or torch.version.hip is None or not torch.cuda.is_initialized():
        return 0
    stream: int = torch.cuda.current_stream(device).cuda_stream
    return stream


def is_capturing(driver: Driver, device: int) -> bool:
    """Whether the calling thread's current stream on ``device`` is recording a graph."""
    return driver.is_capturing(device, current_stream(device))


def capture_error(what: str, device: int) -> CaptureActive:
    """The error for ``what``, which would be loaded while the current stream of ``device`` records."""
    return CaptureActive(
        f"{what} would be loaded while the current stream records a graph",
        where=f"device {device}",
        fix="load it before the capture: preload the deployment's launches when the server starts,"
        " or run one step of this width eagerly first",
    )
