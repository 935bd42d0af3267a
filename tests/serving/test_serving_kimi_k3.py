"""Kimi-K3's specialized decode of the duck-typed engine with launches from a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from serving_kit import K3, change, config, planned, ranks_of, serving_of, store_of
from standin_hip import StandIn

from mono_runtime.errors import DriverError, LaunchMissing
from mono_runtime.launch_key import LaunchKey
from mono_runtime.loader import Loader

DECODE = f"{K3}.specialized_decode"


class Server:
    """One rank's model, with the settings that its hook left it."""

    def __init__(self, store: Path, **variables: str) -> None:
        self.serving = serving_of(store, **variables)
        self.modules = change(self.serving, "kimi_k3")
        __import__("vllm.distributed")
        ranks_of(None)
        self.settings = self.modules[f"{K3}.linear"].build_model(config("kimi_k3"))
        self.k1 = self.modules[f"{DECODE}.mono.attention.kda"]
        self.k2 = self.modules[f"{DECODE}.mono.layer"]
        self.layers = self.modules[f"{DECODE}.runtime.layers"]

    def builds(self, widths: Sequence[int] = (4, 8)) -> list[Any]:
        """What the executor builds, two layers of each width."""
        return [
            build
            for s in widths
            for build in (
                self.k1.KdaPreBuild(s, qlen=4, nblocks=1, delta=True, state_len=6),
                self.k2.K2Build(s, nblocks=1),
            )
        ]

    def executor(self, builds: Sequence[Any], **options: Any) -> Any:
        decode = self.modules[f"{DECODE}.runtime.decode"]
        return decode.SpecializedDecode(builds, num_spec=3, **options)

    @property
    def compiled(self) -> list[Any]:
        return [*self.k1.compiled, *self.k2.compiled]


@pytest.fixture
def server(hip: StandIn, engine: Callable[[str], object], tmp_path: Path) -> Callable[..., Server]:
    def build(keep: Callable[[LaunchKey], bool] = lambda key: True, **variables: str) -> Server:
        keys = [k for k in planned("kimi_k3").keys if keep(k)]
        return Server(store_of(tmp_path / "store", keys), **variables)

    return build


def of_width(rows: int) -> Callable[[LaunchKey], bool]:
    return lambda key: key.values["tokens"] == rows


def test_building_loads_and_does_not_launch_with_zeros(
    hip: StandIn, server: Callable[..., Server]
) -> None:
    made = server()
    assert made.settings.widths == (4, 8)
    executor = made.executor(made.builds())
    assert (hip.launches(), made.compiled, made.layers.calls_with_zeros) == ([], [], [])
    step = executor.plan(8, query=4)
    assert step.width == 8
    made.k1.kda_pre(made.builds([8])[0])
    made.k2.k2_launch(made.builds([8])[1])
    assert [r.symbol for r in hip.launches()] == ["k1_8", "k1_8"]
    assert made.compiled == []


def test_an_epsilon_that_the_plan_did_not_expect_is_a_named_error_at_load(
    server: Callable[..., Server],
) -> None:
    made = server()
    build = made.k2.K2Build(8, nblocks=1, ln_eps=1e-6)
    with pytest.raises(LaunchMissing, match="ln_eps is 1e-05, not 1e-06"):
        made.executor([*made.builds(), build])
    assert made.compiled == []


def test_under_stock_the_width_of_such_a_launch_is_declined(server: Callable[..., Server]) -> None:
    made = server(MONO_POLICY="stock")
    build = made.k2.K2Build(8, nblocks=1, ln_eps=1e-6)
    executor = made.executor([*made.builds(), build])
    assert executor.plan(4, query=4).width == 4
    assert executor.plan(8, query=4) is None
    assert made.compiled == []


def test_a_launch_beyond_the_plan_that_the_store_has_is_loaded_then(
    hip: StandIn, engine: Callable[[str], object], tmp_path: Path
) -> None:
    keys = list(planned("kimi_k3").keys)
    more = next(k for k in keys if k.launch == "k2" and k.values["tokens"] == 8)
    other = LaunchKey.of("kimi_k3", "k2", "gfx950", {**more.values, "ln_eps": 1e-6})
    made = Server(store_of(tmp_path / "store", [*keys, other]))
    executor = made.executor([replace(b, ln_eps=1e-6) for b in made.builds([8])[1:]])
    assert executor.plan(8, query=4).width == 8
    assert made.compiled == []


def test_stock_without_all_launches_of_a_width_serves_the_others(
    server: Callable[..., Server],
) -> None:
    made = server(keep=of_width(4), MONO_POLICY="stock")
    executor = made.executor(made.builds())
    assert executor.plan(4, query=4).width == 4
    assert executor.plan(8, query=4) is None


def test_stock_without_any_launch_leaves_the_stock_decode(server: Callable[..., Server]) -> None:
    assert server(keep=lambda key: key.launch == "k1", MONO_POLICY="stock").settings is None


def test_strict_without_a_launch_raises_when_the_model_is_built(
    server: Callable[..., Server],
) -> None:
    with pytest.raises(LaunchMissing):
        server(keep=of_width(4))


def test_jit_compiles_what_is_missing_as_the_engine_does(
    hip: StandIn, server: Callable[..., Server]
) -> None:
    made = server(keep=of_width(4), MONO_POLICY="jit")
    executor = made.executor(made.builds())
    assert [b.tokens for b in made.compiled] == [8, 8]
    assert [b.tokens for b in made.layers.calls_with_zeros] == [8, 8]
    assert executor.plan(8, query=4).width == 8
    assert hip.launches() == []


@pytest.mark.parametrize(
    ("options", "query"),
    [
        # Requests of another number of rows would ask for other keys.
        ({}, 2),
        # Nothing is pending before the first layer: K1 with delta false.
        ({"first_layer": 0}, 4),
    ],
)
def test_a_step_whose_variant_is_not_loaded_is_declined_before_anything_launches(
    hip: StandIn, server: Callable[..., Server], options: dict[str, int], query: int
) -> None:
    made = server()
    executor = made.executor(made.builds(), **options)
    assert executor.plan(8, query=query) is None
    assert hip.launches() == []


def test_a_cache_with_another_convolution_state_is_declined_until_the_right_one_is_bound(
    server: Callable[..., Server],
) -> None:
    made = server()
    executor = made.executor(made.builds())
    executor.prepare_kv(None)
    assert executor.plan(8, query=4).width == 8
    # Three entries and as many drafts: six.
    executor.prepare_kv(7)
    assert executor.plan(8, query=4) is None
    executor.prepare_kv(6)
    assert executor.plan(8, query=4).width == 8


@pytest.mark.parametrize("policy", ["strict", "stock", "jit"])
def test_what_no_policy_excuses_is_raised_when_the_executor_is_made(
    server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    made = server(MONO_POLICY=policy)

    def load(self: Loader, key: LaunchKey, **_: object) -> None:
        raise DriverError("out of memory")

    monkeypatch.setattr(Loader, "load", load)
    with pytest.raises(DriverError, match="out of memory"):
        made.executor(made.builds([4]))
    assert made.compiled == []


def test_delta_false_is_a_named_error_of_the_launch(server: Callable[..., Server]) -> None:
    made = server()
    build = replace(made.builds([8])[0], delta=False)
    with pytest.raises(LaunchMissing, match="delta is true, not false"):
        made.k1.kda_pre(build)
    assert made.compiled == []


def test_the_stock_backend_is_left_alone(
    hip: StandIn, engine: Callable[[str], Any], tmp_path: Path
) -> None:
    serving = serving_of(tmp_path / "no store is opened")
    model = change(serving, "kimi_k3")[f"{K3}.linear"]
    assert (
        model.build_model(config("kimi_k3", additional_config={"decode_backend": "auto"})) is None
    )
