"""Which steps the launches take: a table of one thing amiss at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mono_runtime.hooks.deepseek_v41.facts import StepFacts, StepLimits, WindowFacts
from mono_runtime.hooks.deepseek_v41.step import StepDecision, decide_step

WIDTHS = frozenset({6, 12, 18})
LIMITS = StepLimits(rows=48, served=WIDTHS)
COMPRESSED = replace(LIMITS, ratio=2)
FFN = replace(LIMITS, swa_width=None)
WINDOW = WindowFacts(prefills=0, decodes=2, decode_tokens=12, width=128, complete=True)
STEP = StepFacts(rows=12, graph_mode="FULL", window=WINDOW, compressed=True)


def windowed(**changed: object) -> StepFacts:
    return replace(STEP, window=replace(WINDOW, **changed))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("step", "limits"),
    [
        (STEP, LIMITS),
        (STEP, COMPRESSED),
        (STEP, FFN),
        (replace(STEP, graph_mode="NONE"), LIMITS),
        (windowed(decode_tokens=10), LIMITS),  # a graph's padding
        (replace(STEP, compressed=False), LIMITS),  # a layer of ratio 0 has no compressed cache
        (windowed(width=192), replace(LIMITS, swa_width=192)),
    ],
)
def test_steps_that_are_taken(step: StepFacts, limits: StepLimits) -> None:
    assert decide_step(step, limits) == StepDecision(None)
    assert decide_step(step, limits).taken


@pytest.mark.parametrize(
    ("step", "limits", "words"),
    [
        (replace(STEP, entered=False), LIMITS, "pipeline stage"),
        (replace(STEP, rows=0), LIMITS, "no rows"),
        (replace(STEP, rows=49), LIMITS, "more than 48 rows"),
        (replace(STEP, rows=43), replace(LIMITS, rows=42), "more than 42 rows"),
        (replace(STEP, graph_mode=None), LIMITS, "no forward context"),
        (replace(STEP, graph_mode="PIECEWISE"), LIMITS, "PIECEWISE"),
        (replace(STEP, metadata=False, window=None), LIMITS, "no attention metadata"),
        (replace(STEP, window=None), LIMITS, "no window metadata"),
        (windowed(prefills=1), LIMITS, "decodes alone"),
        (windowed(decodes=0), LIMITS, "decodes alone"),
        (windowed(decode_tokens=13), LIMITS, "more decode tokens than rows"),
        (windowed(width=192), LIMITS, "192 wide, not 128"),
        (STEP, replace(LIMITS, swa_width=192), "128 wide, not 192"),
        (windowed(complete=False), LIMITS, "without its decode rows"),
        (replace(STEP, compressed=False), COMPRESSED, "compressed cache"),
        (replace(STEP, contiguous=False), LIMITS, "contiguous"),
        (replace(STEP, contiguous=False), FFN, "contiguous"),
        (windowed(prefills=1), FFN, "decodes alone"),
        (replace(STEP, rows=13), LIMITS, "no launches for a step of 13 rows"),
    ],
)
def test_one_thing_amiss_leaves_the_step_to_the_engine(
    step: StepFacts, limits: StepLimits, words: str
) -> None:
    decision = decide_step(step, limits)
    assert not decision.taken
    assert decision.reason is not None
    assert words in decision.reason


@pytest.mark.parametrize(
    "step",
    [windowed(width=192), windowed(complete=False), replace(STEP, compressed=False)],
)
def test_the_ffn_launch_reads_nothing_of_the_attention(step: StepFacts) -> None:
    assert decide_step(step, replace(FFN, ratio=2)).taken


def test_what_is_wrong_with_many_steps_has_few_texts() -> None:
    # Reasons are counted and each is logged once: a text for every row number would not end.
    reasons = {decide_step(replace(STEP, rows=rows), LIMITS).reason for rows in range(4096)}
    # 35 widths that are not in the store, no rows, too many, fewer than decode tokens, and none.
    assert len(reasons) == 39


def test_several_things_amiss_give_one_reason() -> None:
    broken = StepFacts(rows=4096, graph_mode="PIECEWISE", metadata=False, contiguous=False)
    assert decide_step(broken, LIMITS).reason == "more than 48 rows"
