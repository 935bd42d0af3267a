from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import standin_hip
from standin_hip import FakeDevice, StandIn

TESTS = Path(__file__).parents[1]
ENGINE = Path(__file__).with_name("engine")
# Made-up stores, ranks and configurations of servers are those of their own tests.
sys.path += [str(TESTS / name) for name in ("store", "ranks", "runtime", "coverage")]

MI355X = FakeDevice("gfx950:sramecc+:xnack-", 256, name="AMD Instinct MI355X", pci="0001:c5:00")


@pytest.fixture
def hip() -> Iterator[StandIn]:
    """The stand-in with one MI355X."""
    standin = standin_hip.load()
    standin.reset(MI355X)
    yield standin
    standin.reset()


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MONO_CONFIG_FILE", "MONO_V41_RUNNER", "VLLM_USE_BREAKABLE_CUDAGRAPH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], object]]:
    """Imports a module of the duck-typed engine, which is new in each test."""

    def forget() -> None:
        for name in [n for n in sys.modules if n.partition(".")[0] == "vllm"]:
            del sys.modules[name]

    forget()
    monkeypatch.syspath_prepend(ENGINE)
    yield importlib.import_module
    forget()
