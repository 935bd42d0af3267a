"""The stream that the calling thread works on, as torch sees it."""

from __future__ import annotations

import sys


def current_stream(device: int) -> int:
    """The raw stream of torch's current stream on ``device``; 0, the default stream, without torch.

    torch is asked only when it is loaded, made for HIP and has touched a device already.
    """
    torch = sys.modules.get("torch")
    if torch is None or torch.version.hip is None or not torch.cuda.is_initialized():
        return 0
    stream: int = torch.cuda.current_stream(device).cuda_stream
    return stream
