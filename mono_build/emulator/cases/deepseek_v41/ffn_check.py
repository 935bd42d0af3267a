"""Checks of the FFN half on all ranks: every stage against what the stage before left, then the whole."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mono_build.emulator.cases.case import Memory
from mono_build.emulator.cases.compare import Comparison, compare, equal
from mono_build.emulator.cases.deepseek_v41 import regions
from mono_build.emulator.cases.deepseek_v41.build import Target
from mono_build.emulator.cases.deepseek_v41.inputs import Activations
from mono_build.emulator.cases.deepseek_v41.k1 import mxfp8_checks, seam_checks
from mono_build.emulator.cases.deepseek_v41.read import RankMemory
from mono_build.emulator.cases.deepseek_v41.weights import LayerWeights
from mono_build.emulator.references.bounded import Bounded, cat, exact, linear, split, stack
from mono_build.emulator.references.deepseek_v41 import attention, experts, layer, router, seam
from mono_build.emulator.references.deepseek_v41.geometry import HIDDEN, STREAMS
from mono_build.emulator.references.formats import Quantised, Rule, mxfp8
from mono_build.emulator.references.formats import step as e4m3_step

WHOLE = "from the launch's inputs"


@dataclass(frozen=True, slots=True)
class Routing:
    """A step's picks as the experts' stages order them.

    ``experts`` and ``weights`` [T, k]; ``rows`` maps a pick (token, k) to its row of the middle: picks
    are ordered by expert, then by token.
    """

    experts: Tensor
    weights: Tensor
    rows: dict[tuple[int, int], int]

    @staticmethod
    def of(picks: Tensor, weights: Tensor) -> Routing:
        """From every token's picks and their weights."""
        tokens, k = picks.shape
        order = sorted((int(picks[t, i]), t, i) for t in range(tokens) for i in range(k))
        return Routing(picks, weights, {(t, i): row for row, (_, t, i) in enumerate(order)})

    def by_expert(self) -> dict[int, list[tuple[int, int]]]:
        """Each picked expert's picks (token, k)."""
        found: dict[int, list[tuple[int, int]]] = {}
        for t, k in self.rows:
            found.setdefault(int(self.experts[t, k]), []).append((t, k))
        return found


class HalfCheck:
    """What to compare after a launch that ends with the FFN half."""

    def __init__(self, target: Target, scratch: Target, weights: LayerWeights) -> None:
        """``scratch`` is the build whose layout the scratch has."""
        self._target, self._scratch, self._weights = target, scratch, weights
        self._tokens, self._tp = target.build.tokens, target.build.tp

    def of(self, memory: Memory, rank: int) -> RankMemory:
        """A rank's memory."""
        return RankMemory(memory, rank, self._scratch)

    def run(self, memory: Memory, parts: list[Bounded]) -> list[Comparison]:
        """All comparisons; ``parts`` are the ranks' attention outputs [T, 5120] by the reference."""
        ranks = [self.of(memory, r) for r in range(self._tp)]
        given = self._given(ranks[0])
        whole = self._seam(parts, given)
        comparisons: list[Comparison] = []
        outputs: list[Bounded] = []
        routings = [self._routing(m) for m in ranks]
        inputs = layer.expert_inputs(whole.normed, self._route_of(whole.normed, routings[0]))
        for m, routing in zip(ranks, routings, strict=True):
            comparisons += self._before_experts(m, self._given(m))
            of_experts, output = self._experts(m, ranks, routing, inputs)
            comparisons += of_experts
            outputs.append(output)
        for m in ranks:
            comparisons += self._after_experts(m, ranks)
        return comparisons + self._whole(ranks, whole, outputs, inputs.route, routings)

    def _given(self, m: RankMemory) -> Activations:
        t = self._tokens
        return Activations(
            torch.empty(t, HIDDEN),
            m.buffer("res_mid", "bf16", t, STREAMS, HIDDEN),
            m.buffer("post_mid", "f32", t, STREAMS),
            m.buffer("comb_mid", "f32", t, STREAMS, STREAMS),
            m.buffer("pre_mid", "f32", t, STREAMS),
        )

    def _seam(self, parts: list[Bounded], given: Activations) -> layer.Seam:
        mine = self._weights.seam("ffn")
        return layer.run_seam(
            attention.reduce_ranks(parts),
            given.known(),
            mine.mix,
            mine.norm,
        )

    def _before_experts(self, m: RankMemory, given: Activations) -> list[Comparison]:
        t, of = self._tokens, f"rank {m.rank}"
        mine = self._weights.seam("ffn")
        x = attention.reduce_ranks([exact(p) for p in m.attention_parts()])
        names = ("res_out", "post_out", "comb_out", "pre_out")
        comparisons = seam_checks(m, "ffn", names, given, x, mine.mix)
        normed = m.plain("normed", "bf16", t, HIDDEN)
        want = seam.norm(exact(m.pairs("lin", "bf16", t, HIDDEN)), mine.norm)
        comparisons.append(compare(f"experts' input, {of}", normed, want, "bf16"))
        known = exact(normed)
        comparisons.append(self._routed_input(m, known))
        comparisons += mxfp8_checks(
            m, f"shared expert's input, {of},", ("x8", "x8s"), known, Rule.DIVIDE
        )
        return comparisons + self._route(m, known)

    def _routed_input(self, m: RankMemory, normed: Bounded) -> Comparison:
        want = mxfp8(normed, Rule.MULTIPLY)
        got = self._x8r(m)
        steps = e4m3_step(want.values.value, want.codes)
        return compare(
            f"routed experts' input, rank {m.rank}, in MXFP8", got, want.values, "E4M3", steps
        )

    def _x8r(self, m: RankMemory) -> Tensor:
        data = m.plain("x8r", "i32", self._tokens, HIDDEN // 4).view(torch.uint8)
        codes = m.plain("x8rs", "i32", self._tokens, HIDDEN // 32)
        return m.e4m3(self._even_odd(data), codes)

    def _even_odd(self, data: Tensor) -> Tensor:
        # gfx942 keeps the even values of each eight first, as its E2M1 conversion gives the weights.
        if not self._target.gfx942:
            return data
        return split(data, -1, -1, 2, 4).transpose(-1, -2).flatten(-3)

    def _route(self, m: RankMemory, normed: Bounded) -> list[Comparison]:
        b, of = self._target.build, f"rank {m.rank}"
        gate = self._weights.gate()
        parts = m.pairs("logit", "f32", b.tokens, b.experts, regions.ROUTER_PARTS)
        width = HIDDEN // regions.ROUTER_PARTS
        cuts = [slice(p * width, (p + 1) * width) for p in range(regions.ROUTER_PARTS)]
        want = stack([linear(gate[:, c], normed[:, c], router.LOGIT_DEPTH) for c in cuts], -1)
        comparisons = [compare(f"router's sums, {of}", parts, want, "f32")]
        raw = torch.zeros(b.tokens, b.experts)
        for p in range(regions.ROUTER_PARTS):
            raw = raw + parts[..., p]
        score = router.scores(exact(raw))
        ranked = router.ranks(score, self._weights.bias())
        routing = self._routing(m)
        possible = router.possible(ranked, routing.experts)
        route = router.weigh(score, routing.experts)
        return [
            *comparisons,
            equal(f"picks that the sums allow, {of}", possible, torch.ones(b.tokens)),
            compare(f"picks' weights, {of}", routing.weights, route.weights, "f32"),
        ]

    def _routing(self, m: RankMemory) -> Routing:
        b = self._target.build
        shape = (regions.ROUTE_COPIES, b.tokens, 2, b.topk)
        words = m.pairs("route", "i32", *shape)[0]
        weights = m.pairs("route", "f32", *shape)[0]
        return Routing.of(words[:, 0].long(), weights[:, 1])

    def _route_of(self, normed: Bounded, routing: Routing) -> router.Route:
        """The reference's route; where rounding leaves a choice, the one that the kernel took."""
        score = router.scores(router.logits(self._weights.gate(), normed))
        ranked = router.ranks(score, self._weights.bias())
        own = router.best(ranked, self._target.build.topk)
        allowed = router.possible(ranked, routing.experts)
        return router.weigh(score, torch.where(allowed[:, None], routing.experts, own))

    def _experts(
        self,
        m: RankMemory,
        ranks: list[RankMemory],
        routing: Routing,
        inputs: layer.ExpertInputs,
    ) -> tuple[list[Comparison], Bounded]:
        """A rank's experts, once from what its stages left and once from the reference's inputs."""
        t, k, of = self._tokens, self._target.build.topk, f"rank {m.rank}"
        x8r, middle = exact(self._x8r(m)), self._middle(m)
        wanted: dict[int, Quantised] = {}
        near: dict[tuple[int, int], Bounded] = {}
        far: dict[tuple[int, int], Bounded] = {}
        own = _picks(inputs.route)
        for e in sorted({*routing.by_expert(), *own}):
            weights = self._weights.expert(m.rank, e).values()
            mine, theirs = routing.by_expert().get(e, []), own.get(e, [])
            rows = [routing.rows[p] for p in mine]
            made = experts.routed_middle(
                weights,
                cat([x8r[[p[0] for p in mine]], inputs.routed.values[[p[0] for p in theirs]]], 0),
            )
            for i, row in enumerate(rows):
                wanted[row] = Quantised(made.codes[i], made.values[i])
            output = experts.down(weights, cat([exact(middle[rows]), made.values[len(mine) :]], 0))
            for i, p in enumerate(mine):
                near[p] = _weighed(output[i], exact(routing.weights[p]))
            for i, p in enumerate(theirs):
                far[p] = _weighed(output[len(mine) + i], inputs.route.weights[p])
        want = stack([wanted[row].values for row in range(t * k)], 0)
        codes = torch.stack([wanted[row].codes for row in range(t * k)])
        steps = e4m3_step(want.value, codes)
        comparisons = [
            compare(f"routed experts' middle, {of}, in MXFP8", middle, want, "E4M3", steps)
        ]
        of_shared, shared, shared_whole = self._shared(m, inputs)
        sums = [
            stack([experts.add_up([parts[i, j] for j in range(k)], joint[i]) for i in range(t)], 0)
            for parts, joint in ((near, shared), (far, shared_whole))
        ]
        pushed = ranks[0].expert_parts()[m.rank]
        comparisons.append(compare(f"experts' part, {of}", pushed, sums[0], "bf16"))
        return comparisons + of_shared, sums[1]

    def _middle(self, m: RankMemory) -> Tensor:
        """The routed experts' quantised middle by rows of picks: [T k, inter] in float64."""
        shard, rows = self._target.build.shard, self._tokens * self._target.build.topk
        groups = shard.inter // 32
        padded = shard.inter_padded
        data = m.plain("mid", "i32", rows, padded // 4).view(torch.uint8)
        codes = m.plain("mids", "i32", rows, padded // 32)
        if self._target.gfx942:
            # In each 128 values: lane groups of 8 values of every 32, the even ones first.
            data = split(data, 1, -1, 4, 4, 2, 4).permute(0, 1, 3, 2, 5, 4).flatten(1)
        else:
            # Codes of every fourth group lie together.
            codes = split(codes, 1, 4, -1).transpose(1, 2).flatten(1)
        return m.e4m3(data[:, : shard.inter], codes[:, :groups])

    def _shared(
        self, m: RankMemory, inputs: layer.ExpertInputs
    ) -> tuple[list[Comparison], Bounded, Bounded]:
        t, of, inter = self._tokens, f"rank {m.rank}", self._target.build.shard.inter
        weights = self._weights.shared(m.rank).values()
        x8 = exact(m.mxfp8("x8", "x8s", t, HIDDEN)[0])
        made = experts.shared_activation(weights, cat([x8, inputs.shared.values], 0))
        activation = m.pairs("smid", "f32", t, inter)
        want = mxfp8(exact(activation), Rule.DIVIDE)
        data = m.pairs("smq", "i32", t, inter // 4).view(torch.uint8)
        middle = m.e4m3(data, m.pairs("smc", "i32", t, inter // 32))
        comparisons = [
            compare(f"shared expert's middle, {of}", activation, made[:t], "bf16"),
            compare(
                f"shared expert's middle, {of}, in MXFP8",
                middle,
                want.values,
                "E4M3",
                e4m3_step(want.values.value, want.codes),
            ),
        ]
        whole = mxfp8(made[t:], Rule.DIVIDE).values
        output = experts.shared_output(weights, cat([exact(middle), whole], 0))
        return comparisons, output[:t], output[t:]

    def _after_experts(self, m: RankMemory, ranks: list[RankMemory]) -> list[Comparison]:
        t, of = self._tokens, f"rank {m.rank}"
        pushed = m.expert_parts()
        want = attention.reduce_ranks([exact(p) for p in pushed])
        first = ranks[0].expert_parts()
        return [
            equal(f"experts' parts, at {of}", pushed.view(torch.int16), first.view(torch.int16)),
            compare(f"output, {of}", m.buffer("out", "bf16", t, HIDDEN), want, "bf16"),
            equal(
                f"epoch, {of}", m.buffer("epoch", "i32", 1), torch.tensor([self._target.epoch + 1])
            ),
        ]

    def _whole(
        self,
        ranks: list[RankMemory],
        whole: layer.Seam,
        outputs: list[Bounded],
        route: router.Route,
        routings: list[Routing],
    ) -> list[Comparison]:
        t = self._tokens
        out = attention.reduce_ranks(outputs)
        comparisons = []
        for m, routing in zip(ranks, routings, strict=True):
            streams = m.buffer("res_out", "bf16", t, STREAMS, HIDDEN)
            got = m.buffer("out", "bf16", t, HIDDEN)
            comparisons += [
                compare(f"streams, rank {m.rank}, {WHOLE}", streams, whole.residual, "bf16"),
                equal(f"picked experts, rank {m.rank}, {WHOLE}", routing.experts, route.experts),
                compare(f"output, rank {m.rank}, {WHOLE}", got, out, "bf16"),
            ]
        return comparisons


def _picks(route: router.Route) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for t, k in torch.cartesian_prod(*(torch.arange(n) for n in route.experts.shape)).tolist():
        found.setdefault(int(route.experts[t, k]), []).append((t, k))
    return found


def _weighed(output: Bounded, weight: Bounded) -> Bounded:
    return experts.contribution(output, weight.map(lambda v: v.expand(output.shape)))
