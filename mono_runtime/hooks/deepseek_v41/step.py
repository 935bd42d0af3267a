"""Whether a layer's part of a step runs the launches; a pure function over `facts`.

Ranks wait for each other inside a launch, so all have to decide alike. Nothing is read here that one
rank could see differently: numbers of rows and requests, the graph mode, and which metadata there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mono_runtime.hooks.deepseek_v41.facts import StepFacts, StepLimits, WindowFacts

# A piecewise graph is captured once and replayed for batches that also prefill.
_MODES = ("NONE", "FULL")


@dataclass(frozen=True, slots=True)
class StepDecision:
    """Whether the launches take a step.

    Attributes:
        reason: why the engine runs it, from a bounded set of texts; None when the launches do.
        lacking: the launches would take it, and the store does not have them.
    """

    reason: str | None = None
    lacking: bool = False

    @property
    def taken(self) -> bool:
        """Whether the launches run it."""
        return self.reason is None


_TAKEN = StepDecision()


def decide_step(step: StepFacts, limits: StepLimits) -> StepDecision:
    """The decision of one layer and step. Of several reasons it has the first that was looked at."""
    reason = next(_reasons(step, limits), None)
    if reason is not None:
        return StepDecision(reason)
    if step.rows not in limits.served:
        return StepDecision(
            f"the store has no launches for a step of {step.rows} rows", lacking=True
        )
    return _TAKEN


def _reasons(step: StepFacts, limits: StepLimits) -> Iterator[str]:
    if not step.entered:
        yield "the first layer of a later pipeline stage"
    if step.rows < 1:
        yield "no rows"
    if step.rows > limits.rows:
        yield f"more than {limits.rows} rows"
    if step.graph_mode is None:
        yield "no forward context"
    if step.graph_mode not in _MODES:
        yield f"a {step.graph_mode} graph, which is replayed for mixed batches too"
    if not step.metadata:
        yield "no attention metadata (a profile run, or micro-batches)"
    if step.window is None:
        yield "no window metadata for the layer"
        return
    yield from _window_reasons(step.window, step.rows, limits)
    if limits.swa_width is not None and limits.ratio and not step.compressed:
        yield "no metadata for the layer's compressed cache"
    if not step.contiguous:
        yield "inputs are not contiguous"


def _window_reasons(window: WindowFacts, rows: int, limits: StepLimits) -> Iterator[str]:
    if window.prefills or not window.decodes:
        yield "not a step of decodes alone"
    if window.decode_tokens > rows:
        yield "more decode tokens than rows"
    if limits.swa_width is None:
        return
    if window.width != limits.swa_width:
        yield f"window rows {window.width} wide, not {limits.swa_width}"
    if not window.complete:
        yield "window metadata without its decode rows"
