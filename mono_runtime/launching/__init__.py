"""Launching: from a caller's arguments to kernels on a stream."""

from __future__ import annotations

from mono_runtime.launching.binding import BoundLaunch
from mono_runtime.launching.launch import Launch
from mono_runtime.launching.signature import require_signature

__all__ = ["BoundLaunch", "Launch", "require_signature"]
