"""The figures of serving: what is counted, from answers of measured processes that are written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from figures import layers, starting
from figures.bench import Bench
from figures.deployment import DeploymentStore
from figures.errors import BenchError
from figures.figure import Verdict

from mono_runtime.hooks.deployments import Planned, plan_deployment
from mono_runtime.hooks.engine_config import read_engine_config
from mono_runtime.launch_key import LaunchKey


def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, None, None, 1, False, lambda line: None)


def store(count: int) -> DeploymentStore:
    keys = [LaunchKey.of("deepseek_v41", "k1", "gfx950", {"tokens": n}) for n in range(count)]
    return DeploymentStore(Path("store"), (), tuple(keys), {})


def rank(wall: float, loaded: int = 84, compilers: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "wall": wall,
        "cpu": wall / 2,
        "registered": 0.01,
        "loaded": loaded,
        "needed": loaded,
        "compilers": list(compilers),
    }


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[list[dict[str, Any]]]:
    """What the ranks told, for a test to fill."""
    found: list[list[dict[str, Any]]] = []
    monkeypatch.setattr(starting, "_starts", lambda *_: found)
    return found


def test_a_start_takes_as_long_as_its_slowest_rank(
    tmp_path: Path, starts: list[list[dict[str, Any]]]
) -> None:
    starts += [[rank(0.1), rank(0.5)], [rank(0.9), rank(0.2)], [rank(0.3), rank(0.7)]]
    first, *_, last = starting.figures(bench(tmp_path), store(84))
    assert (first.value, first.verdict) == (0.7, Verdict.MET)
    assert (last.value, last.verdict) == (0, Verdict.MET)


def test_a_rank_that_imports_flydsl_misses_the_goal(
    tmp_path: Path, starts: list[list[dict[str, Any]]]
) -> None:
    starts += [[rank(0.1), rank(0.1, compilers=("flydsl", "_mlir"))]]
    *_, last = starting.figures(bench(tmp_path), store(84))
    assert (last.value, last.verdict) == (2, Verdict.MISSED)


def test_a_rank_that_loaded_less_is_no_measurement(
    tmp_path: Path, starts: list[list[dict[str, Any]]]
) -> None:
    starts += [[rank(0.1), rank(0.1, loaded=83)]]
    with pytest.raises(BenchError, match="instead of 84"):
        list(starting.figures(bench(tmp_path), store(84)))


def test_the_configuration_of_the_bench_is_that_of_the_84_launches() -> None:
    planned = plan_deployment(read_engine_config(starting._CONFIG), "gfx950")
    assert isinstance(planned, Planned)
    assert len(planned.keys) == 84


def answer(launched: int = 2) -> dict[str, Any]:
    # The first turn was slow for both; their ratio is as in the others. Who traces has one turn alone.
    samples = {
        "flydsl": [4.0],
        "compiled": [8e-4, 4e-4, 4e-4],
        "plugin": [4e-4] * 3,
        "own": [2e-4, 1e-4, 1e-4],
    }
    counts = dict.fromkeys(samples, launched)
    return {"flydsl": "0.5.0", "launched": counts, "samples": samples}


TASK = {"rows": 24, "layers": 43, "turns": 3, "steps": 20}


def test_ratios_are_of_turns_next_to_each_other(tmp_path: Path) -> None:
    own, compiled, plugin, *times = layers._rows(bench(tmp_path), answer(), TASK)
    assert (own.value, own.verdict) == (pytest.approx(5e-5), Verdict.MET)
    assert (compiled.value, compiled.verdict) == (0.25, Verdict.NONE)
    assert plugin.value == pytest.approx(1e-4)
    assert [round(f.value) for f in times] == [100, 4_000_000, 400]
    assert "FlyDSL 0.5.0" in own.what


def test_a_side_that_launched_something_else_is_no_measurement(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="instead of 2"):
        list(layers._rows(bench(tmp_path), answer(1), TASK))
