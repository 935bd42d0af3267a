"""What every loader of one opened store shares."""

from __future__ import annotations

from dataclasses import dataclass

from mono_runtime.counters import Counters
from mono_runtime.driver import Driver
from mono_runtime.layers import Layers
from mono_runtime.log import Once
from mono_runtime.policy import Policy
from mono_runtime.sources import SourceCheck


@dataclass(frozen=True, slots=True)
class Context:
    """The store's layers, the driver, and how to answer a miss.

    Attributes:
        always_check: whether every call of a launch is checked in full.
    """

    layers: Layers
    driver: Driver
    policy: Policy
    counters: Counters
    sources: SourceCheck
    log: Once
    always_check: bool
