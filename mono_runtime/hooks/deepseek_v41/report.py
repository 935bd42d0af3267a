"""Which steps the engine runs itself, and why: each reason is logged once and counted."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping

from mono_runtime.hooks.deepseek_v41.step import StepDecision
from mono_runtime.log import Once, logger


class StepReport:
    """Counts declined steps, layer by layer, by reason. Reasons come from a bounded set of texts.

    Args:
        lacking: is told of the steps that want of launches declines, so that they are no secret.
    """

    def __init__(self, lacking: Callable[[str], object]) -> None:
        self._lacking = lacking
        self._once = Once()
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def declined(self, decision: StepDecision) -> None:
        """A layer's part of a step is left to the engine."""
        reason = decision.reason or ""
        with self._lock:
            self._counts[reason] += 1
        if decision.lacking:
            self._lacking(reason)
            return
        # Prefills, profile runs and mixed batches are an engine's everyday life, not news.
        self._once(
            logger(),
            logging.DEBUG,
            reason,
            "deepseek_v41: a step runs the engine's own path: %s",
            reason,
        )

    def counts(self) -> Mapping[str, int]:
        """Declined layer steps by reason, so far."""
        with self._lock:
            return dict(sorted(self._counts.items()))
