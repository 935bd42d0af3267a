"""What stops a measurement."""

from __future__ import annotations

from mono_runtime.errors import MonoError


class BenchError(MonoError):
    """A measurement could not be taken, or would not mean what it says."""

    exit_code = 4
