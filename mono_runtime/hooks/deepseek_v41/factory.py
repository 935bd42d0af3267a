"""Decides layer by layer, while vLLM builds the model, which of them run launches, and makes those ready."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from mono_runtime.families.deepseek_v41 import KEYS, MAX_ROWS
from mono_runtime.hooks.deepseek_v41.arguments import FFN, K1, K2, KEY_LIST
from mono_runtime.hooks.deepseek_v41.eligibility import (
    LayerDecision,
    Path,
    check_deployment,
    decide_layer,
)
from mono_runtime.hooks.deepseek_v41.engine import Engine
from mono_runtime.hooks.deepseek_v41.facts import LayerFacts, StepLimits
from mono_runtime.hooks.deepseek_v41.layer import (
    CurrentWeights,
    MonoLayer,
    Rank,
    Runners,
    runner_kind,
)
from mono_runtime.hooks.deepseek_v41.reading import read_deployment, read_layer
from mono_runtime.hooks.deepseek_v41.reload import follow_loading, weights_of
from mono_runtime.hooks.deepseek_v41.report import StepReport
from mono_runtime.hooks.deepseek_v41.runner import Kind, MonoRunner
from mono_runtime.hooks.deepseek_v41.weights import Layout
from mono_runtime.launch_key import Scalar
from mono_runtime.log import Once, logger

if TYPE_CHECKING:
    from mono_runtime.hooks.prepared import Prepared
    from mono_runtime.hooks.serving import Serving

FAMILY = KEYS.name
# A launch's name and the fields of its build key that differ from the defaults.
Needed = tuple[str, Mapping[str, Scalar]]


class RunnerMaker(Protocol):
    """Makes a rank's runners, and keeps what they share."""

    def make(self, prepared: Prepared, engine: Engine, kind: Kind) -> MonoRunner:
        """A runner; called once for each kind of layer, on all ranks."""

    def close(self) -> None:
        """Let go of what the runners share. They are released by themselves, afterwards."""


class LayerFactory:
    """Stands where vLLM's module has the class ``MonoDecodeLayer``: `create` is called for each layer.

    Args:
        serving: gives the launches.
        engine: the process.
        maker: makes the rank's runners.
    """

    def __init__(self, serving: Serving, engine: Engine, maker: RunnerMaker) -> None:
        self._serving = serving
        self._engine = engine
        self._maker = maker
        self._prepared: Prepared | None = None
        self._rank: Rank | None = None
        self._served: dict[tuple[object, ...], frozenset[int]] = {}
        self._once = Once()

    def create(self, layer: Any, vllm_config: Any) -> MonoLayer | None:
        """What runs ``layer``'s decode steps, or None when the engine does.

        Called at the end of the layer's construction, by every rank for every layer in the same order.

        Args:
            layer: vLLM's decoder layer; its weights are not loaded yet.
            vllm_config: the config that it is built from.

        Raises:
            DeploymentRefused: mono kernels are on, and the deployment cannot run them.
            MonoError: as `mono_runtime.hooks.serving.Serving.prepare`; or, under ``strict``, a layer
                needs launches that nobody planned and no store has.
        """
        engine = self._engine
        # vLLM's gfx942 helpers follow the switch with the launches or without.
        engine.record_switch(vllm_config)
        if not vllm_config.kernel_config.monokernel:
            return None
        deployment = read_deployment(layer, vllm_config, engine)
        check_deployment(deployment)
        arch = deployment.arch
        if arch == "gfx942":
            # Left to the first step it would be compiled there, which takes a minute.
            engine.build_topk()
        prepared = self._serving.prepare(
            vllm_config, group=engine.group(), device=engine.device(), family=FAMILY
        )
        if prepared is None:
            return None
        rank = self._rank_of(prepared)
        facts = read_layer(layer, vllm_config, arch, engine)
        decision = decide_layer(facts, arch)
        limits = {}
        if decision.path is not Path.OFF:
            limits = self._limits(prepared, decision, facts, arch)
            if not limits:
                decision = LayerDecision(Path.OFF, ("no store has their launches",))
        self._tell(decision)
        if decision.path is Path.OFF:
            return None
        layout = Layout(arch, deployment.tp, decision.experts, whole=decision.path is Path.WHOLE)
        weights = CurrentWeights(follow_loading(layer, layout), weights_of)
        return MonoLayer(rank, decision, arch, limits, weights)

    def close(self) -> None:
        """Release what the runners own; collective. No step may be running, and none may follow."""
        rank, self._rank, self._prepared = self._rank, None, None
        self._maker.close()
        if rank is not None:
            rank.runners.close()

    def _rank_of(self, prepared: Prepared) -> Rank:
        if self._rank is None or self._prepared is not prepared:
            engine, maker = self._engine, self._maker
            runners = Runners(lambda kind: maker.make(prepared, engine, kind), engine)
            self._rank = Rank(
                engine, runners, StepReport(prepared.decline, prepared.store.counters)
            )
            self._prepared = prepared
            self._served = {}
        return self._rank

    def _limits(
        self, prepared: Prepared, decision: LayerDecision, facts: LayerFacts, arch: str
    ) -> dict[bool, StepLimits]:
        """By whether a step folds, what the layer's launches take; empty when they do not serve it."""
        whole = decision.path is Path.WHOLE
        # The entry is owed nothing. An Engram settles the residual in all steps that have its hashes.
        usual = not (whole and (facts.first or facts.engram))

        def limits(fold: bool) -> StepLimits:
            served: frozenset[int] = frozenset()
            if fold is usual or (whole and facts.engram):
                needed = needed_launches(decision, facts, arch, fold=fold)
                served = self._widths(prepared, needed, planned=fold is usual)
            ratio = facts.attention.ratio if whole else 0
            return StepLimits(MAX_ROWS[arch], served, ratio, decision.swa_width if whole else None)

        found = {fold: limits(fold) for fold in (True, False)}
        return found if found[usual].served else {}

    def _widths(
        self, prepared: Prepared, needed: tuple[Needed, ...], *, planned: bool
    ) -> frozenset[int]:
        key = (planned, *[(name, *sorted(variant.items())) for name, variant in needed])
        if key not in self._served:
            served = _loaded_widths(prepared, needed)
            if planned and not served:
                served = _asked_widths(prepared, needed)
            self._served[key] = served
        return self._served[key]

    def _tell(self, decision: LayerDecision) -> None:
        whose = "draft layers" if decision.draft else "layers"
        if decision.path is Path.WHOLE:
            text = f"whole {whose} run on prebuilt launches"
        elif decision.path is Path.FFN:
            text = "the FFN launch runs behind the engine's attention, for layers with "
        else:
            text = "the engine runs some layers itself: "
        text += "; ".join(decision.reasons)
        self._once(logger(), logging.INFO, text, "%s: %s", FAMILY, text)


def needed_launches(
    decision: LayerDecision, facts: LayerFacts, arch: str, *, fold: bool
) -> tuple[Needed, ...]:
    """The launches of a layer's step: what `launches.Launches` asks for.

    Args:
        fold: whether the previous layer's output is still owed to the residual.
    """
    if decision.path is Path.FFN:
        return ((FFN, {"experts": decision.experts, "topk": decision.topk}),)
    kind, index = runner_kind(decision), facts.attention.indexer is not None
    variant: dict[str, Scalar] = {
        "ratio": facts.attention.ratio,
        "fold": fold,
        "experts": kind.experts,
        "topk": kind.topk,
        "ug_groups": kind.ug_groups,
        "swa_width": kind.swa_width,
    }
    # gfx942's K2 lists no keys: a launch of its own does, between the selection and K2.
    apart = index and arch == "gfx942"
    return (
        (K1, {**variant, "index": index}),
        *(((KEY_LIST, {}),) if apart else ()),
        (K2, {**variant, "index": index and not apart}),
    )


def _loaded_widths(prepared: Prepared, needed: Iterable[Needed]) -> frozenset[int]:
    """Widths whose launches all ranks have loaded and agreed on."""

    def served(rows: int) -> bool:
        return all(prepared.has(prepared.key(name, rows, **variant)) for name, variant in needed)

    return frozenset(rows for rows in prepared.widths if served(rows))


def _asked_widths(prepared: Prepared, needed: Iterable[Needed]) -> frozenset[int]:
    """Widths of launches that the deployment's plan does not name; the policy says what a miss is.

    Collective: what was loaded now is agreed on.
    """
    launches, widths = [*needed], sorted(prepared.widths)
    keys = [prepared.key(name, rows, **variant) for rows in widths for name, variant in launches]
    return _loaded_widths(prepared, launches) if prepared.load(keys) else frozenset()
