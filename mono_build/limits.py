"""How much a build may use, and when it gives up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a build may use.

    Attributes:
        workers: launches at a time.
        timeout: seconds for one launch.
        memory: bytes of data that one launch may allocate; 0 sets no limit.
        retries: how often a launch is tried again when its process died.
        fail_fast: stop at the first failure instead of building the rest.
    """

    workers: int
    timeout: float = 900.0
    memory: int = 8 << 30
    retries: int = 1
    fail_fast: bool = False
