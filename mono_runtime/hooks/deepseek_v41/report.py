"""Which steps the engine runs itself, and why: each reason is logged once and counted."""

from __future__ import annotations

import logging
from collections.abc import Callable

from mono_runtime.counters import Counters
from mono_runtime.families.deepseek_v41 import KEYS
from mono_runtime.hooks.deepseek_v41.step import StepDecision
from mono_runtime.log import Once, logger


class StepReport:
    """Counts declined steps, layer by layer, by reason. Reasons come from a bounded set of texts.

    Args:
        lacking: is told of the steps that want of launches declines, so that they are no secret.
        counters: where declined steps are counted.
    """

    def __init__(self, lacking: Callable[[str], object], counters: Counters) -> None:
        self._lacking = lacking
        self._counters = counters
        self._once = Once()

    def declined(self, decision: StepDecision) -> None:
        """A layer's part of a step is left to the engine."""
        reason = decision.reason or ""
        self._counters.step_declined(KEYS.name, reason)
        if decision.lacking:
            self._lacking(reason)
            return
        # Prefills, profile runs and mixed batches are an engine's everyday life, not news.
        self._once(
            logger(),
            logging.DEBUG,
            reason,
            "%s: a step runs the engine's own path: %s",
            KEYS.name,
            reason,
        )
