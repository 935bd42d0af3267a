"""What of a runner's memory shows whether its launches get on; `health` looks at it."""

from __future__ import annotations

from mono_runtime.hooks.deepseek_v41.buffers import RunnerBuffers
from mono_runtime.hooks.deepseek_v41.health import Area, Watched


def watched(buffers: RunnerBuffers) -> Watched | None:
    """Where to look now; None before the first launch. Called from the watching thread."""
    epoch, peer = buffers.epoch, buffers.peer
    if epoch is None:
        return None
    return Watched(
        epoch=Area(epoch.data_ptr(), 4 * epoch.numel()),
        scratch=tuple(
            (rows, Area(scratch.data_ptr(), size))
            for (rows, size), scratch in buffers.scratch.items()
        ),
        peer=None if peer is None else Area(*peer),
    )
