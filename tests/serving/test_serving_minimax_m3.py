"""MiniMax-M3's FFN launch of the duck-typed engine from a store."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from serving_kit import M3, change, config, planned, ranks_of, serving_of, store_of
from standin_hip import StandIn

from mono_runtime.errors import LaunchMissing, NotResident
from mono_runtime.launch_key import LaunchKey

DECODE = f"{M3}.specialized_decode"


@pytest.fixture
def flydsl(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A FlyDSL that notes what it compiles, and gives something that can be called."""
    compiled: list[object] = []

    class Compile:
        def __getitem__(self, hints: object) -> str:
            return f"compile with {hints}"

        def __call__(self, launcher: object, *arguments: object) -> Any:
            compiled.append(launcher)
            return SimpleNamespace(_keepalive=7)

    package, compiler = ModuleType("flydsl"), ModuleType("flydsl.compiler")
    compiler.compile = Compile()  # type: ignore[attr-defined]
    package.compiler = compiler  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flydsl", package)
    monkeypatch.setitem(sys.modules, "flydsl.compiler", compiler)
    return compiled


class Server:
    """One rank's model, with the settings that its hook left it."""

    def __init__(self, store: Path, **variables: str) -> None:
        self.serving = serving_of(store, **variables)
        self.modules = change(self.serving, "minimax_m3")
        __import__("vllm.distributed")
        ranks_of(None)
        self.settings = self.modules[f"{M3}.model"].build_model(config("minimax_m3"))
        self.module = self.modules[f"{DECODE}.mono.runner"]

    def runner(self) -> Any:
        made = self.module.FfnRunner(self.settings.widths)
        made.warm()
        return made


@pytest.fixture
def server(
    hip: StandIn, engine: Callable[[str], object], flydsl: list[object], tmp_path: Path
) -> Callable[..., Server]:
    def build(keep: Callable[[LaunchKey], bool] = lambda key: True, **variables: str) -> Server:
        keys = [k for k in planned("minimax_m3").keys if keep(k)]
        return Server(store_of(tmp_path / "store", keys), **variables)

    return build


def up_to(rows: int) -> Callable[[LaunchKey], bool]:
    return lambda key: int(key.values["tokens"]) <= rows


def test_warming_compiles_and_launches_nothing(
    hip: StandIn, server: Callable[..., Server], flydsl: list[object]
) -> None:
    made = server()
    runner = made.runner()
    assert (flydsl, hip.launches(), made.module.cache_calls) == ([], [], [])
    # 64 vector registers and 1 KB of LDS: four workgroups of 512 by the registers (CDNA3 and CDNA4).
    assert runner.residency == dict.fromkeys(range(1, 17), 4)
    runner(16)
    runner(3)
    assert [r.symbol for r in hip.launches()] == ["k1_16", "k1_3"]


def test_a_launch_of_flydsl_is_compiled_and_asked_as_ever(
    server: Callable[..., Server], flydsl: list[object]
) -> None:
    made = server()
    import flydsl.compiler as flyc  # type: ignore[import-not-found,unused-ignore]

    compiled = flyc.compile("a launcher", 1, 2)
    assert flydsl == ["a launcher"]
    assert made.module.active_workgroups_per_cu(compiled, "k", 512) == 7
    assert flyc.compile[{"fast": True}] == "compile with {'fast': True}"


def test_changing_the_modules_twice_wraps_the_compiler_once(
    server: Callable[..., Server],
) -> None:
    made = server()
    import flydsl.compiler as flyc  # type: ignore[import-not-found,unused-ignore]

    before = flyc.compile
    change(made.serving, "minimax_m3")
    assert flyc.compile is before


def test_residency_is_not_answered_for_other_workgroups(server: Callable[..., Server]) -> None:
    made = server()
    launch = made.runner().compiled[1]
    with pytest.raises(NotResident, match="workgroups of 256 work-items"):
        made.module.active_workgroups_per_cu(launch, "k", 256)


def test_stock_serves_the_widths_that_the_store_has(server: Callable[..., Server]) -> None:
    made = server(keep=up_to(4), MONO_POLICY="stock")
    assert made.settings.widths == (1, 2, 3, 4)
    assert set(made.runner().compiled) == {1, 2, 3, 4}


def test_stock_without_any_launch_leaves_the_stock_decode(server: Callable[..., Server]) -> None:
    assert server(keep=up_to(0), MONO_POLICY="stock").settings is None


def test_strict_names_what_is_missing_when_the_model_is_built(
    server: Callable[..., Server],
) -> None:
    with pytest.raises(LaunchMissing, match="12 of 16 launches could not be loaded"):
        server(keep=up_to(4))


def test_jit_compiles_the_other_widths(server: Callable[..., Server], flydsl: list[object]) -> None:
    made = server(keep=up_to(14), MONO_POLICY="jit")
    runner = made.runner()
    assert flydsl == ["a launcher"] * 2
    assert len(made.module.cache_calls) == 2
    assert (runner.residency[14], runner.residency[15]) == (4, 7)


def test_without_mono_kernels_flydsl_does_what_it_did(
    hip: StandIn, engine: Callable[[str], Any], flydsl: list[object], tmp_path: Path
) -> None:
    serving = serving_of(store_of(tmp_path / "store", planned("minimax_m3").keys))
    modules = change(serving, "minimax_m3")
    __import__("vllm.distributed")
    ranks_of(None)
    model = modules[f"{M3}.model"]
    assert model.build_model(config("minimax_m3", kernel_config={"monokernel": False})) is None
