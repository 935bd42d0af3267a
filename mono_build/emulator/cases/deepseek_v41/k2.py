"""Cases of K2, alone and after K1: the attention's back, then the FFN half, on all ranks together."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mono_build.emulator.cases.case import (
    Address,
    Buffer,
    Call,
    Case,
    Check,
    Memory,
    Step,
    holding,
    zeros,
)
from mono_build.emulator.cases.compare import Comparison, compare, equal
from mono_build.emulator.cases.deepseek_v41 import k1, packing
from mono_build.emulator.cases.deepseek_v41.build import Target
from mono_build.emulator.cases.deepseek_v41.ffn import candidates, half_arguments, half_buffers
from mono_build.emulator.cases.deepseek_v41.ffn_check import HalfCheck
from mono_build.emulator.cases.deepseek_v41.inputs import (
    Activations,
    activations,
    step,
    with_records,
)
from mono_build.emulator.cases.deepseek_v41.inputs import Step as Inputs
from mono_build.emulator.cases.deepseek_v41.read import RankMemory
from mono_build.emulator.cases.deepseek_v41.rng import Random
from mono_build.emulator.cases.deepseek_v41.weights import LayerWeights
from mono_build.emulator.references.bounded import Bounded, exact, stack
from mono_build.emulator.references.deepseek_v41 import attention, front, layer
from mono_build.emulator.references.deepseek_v41.attention import Cache
from mono_build.emulator.references.deepseek_v41.geometry import HEAD_DIM, KEYS, O_RANK
from mono_build.emulator.references.formats import step as e4m3_step


def case(target: Target, seed: int, *, padding: bool = True) -> Case:
    """K2 alone, from queries and an attention seam's outputs that are drawn."""
    random = Random(seed, "deepseek_v41")
    weights = LayerWeights(target.build, random)
    inputs = step(target, random.of("step"), padding=padding)
    given = activations(target.build.tokens, random.of("ffn seam"))
    shard = target.build.shard
    queries = [
        random.of("query", r).normal(target.build.tokens, shard.heads, HEAD_DIM).bfloat16()
        for r in range(target.build.tp)
    ]
    parts = _reference(target, weights, inputs, inputs.window_cache, [exact(q) for q in queries])
    needed = candidates(target, weights, given, [exact(p.value) for p in parts])
    buffers = []
    for rank in range(target.build.tp):
        own = {
            **k1.common_buffers(target),
            **k1.input_buffers(target, inputs),
            **_buffers(target, rank, weights, inputs),
            **half_buffers(target, rank, weights, needed),
            "q": holding(queries[rank]),
            "res_mid": holding(given.residual),
            "post_mid": holding(given.post),
            "comb_mid": holding(given.comb),
            "pre_mid": holding(given.pre),
        }
        if not _lists_keys(target):
            own |= _key_buffers(target, inputs)
        buffers.append(own)
    steps = (_step(target, weights, inputs),)
    return Case(f"k2 {target.build}", "deepseek_v41", target.arch, seed, tuple(buffers), steps)


def pair(target: Target, seed: int, *, padding: bool = True) -> Case:
    """K1 and then K2 on all ranks: a decoder layer."""
    random = Random(seed, "deepseek_v41")
    weights = LayerWeights(target.build, random)
    inputs = step(target, random.of("step"), padding=padding)
    given = activations(target.build.tokens, random.of("attention seam"))
    after, needed = _layer(target, weights, inputs, given)
    buffers = []
    for rank in range(target.build.tp):
        own = {
            **k1.common_buffers(target),
            **k1.input_buffers(target, inputs),
            **k1.k1_buffers(target, rank, weights, given),
            **_buffers(target, rank, weights, inputs),
            **half_buffers(target, rank, weights, needed),
        }
        if target.build.index and not _lists_keys(target):
            own |= _key_buffers(target, inputs)  # what vLLM's own list makes between the launches
        buffers.append(own)
    first = Step(
        tuple(k1.k1_call(target, r, inputs) for r in range(target.build.tp)),
        _all([k1.k1_check(target, r, weights, inputs, given) for r in range(target.build.tp)]),
    )
    steps = (first, _step(target, weights, after))
    return Case(f"k1, k2 {target.build}", "deepseek_v41", target.arch, seed, tuple(buffers), steps)


def _lists_keys(target: Target) -> bool:
    """Whether K2 itself lists the keys: an index source's on gfx950."""
    return target.build.index and not target.gfx942


def _buffers(target: Target, rank: int, weights: LayerWeights, inputs: Inputs) -> dict[str, Buffer]:
    wo_a = packing.dense(weights.wo_a(rank), gfx942=target.gfx942)
    wo_b = packing.dense(weights.wo_b(rank), gfx942=target.gfx942)
    return {
        "sink": holding(weights.sink(rank)),
        "woa": holding(wo_a[0]),
        "woa_s": holding(wo_a[1]),
        "wob": holding(wo_b[0]),
        "wob_s": holding(wo_b[1]),
        "zrec": zeros(1024),
    }


def _key_buffers(target: Target, inputs: Inputs) -> dict[str, Buffer]:
    keys = front.keys(inputs.keys(target.build.ratio))
    return {"kt": holding(keys.table), "klen": holding(torch.cat([keys.length, keys.compressed]))}


def _call(target: Target, rank: int, inputs: Inputs) -> Call:
    far = bool(target.build.ratio)
    names = ("sink", "woa", "woa_s", "wob", "wob_s", "zrec")
    arguments: Mapping[str, int | Address] = {
        **k1.key_arguments(target, inputs),
        **half_arguments(rank),
        **{name: Address(name) for name in names},
        "comp": Address("comp" if far else "dummy"),
        "comp_stride": inputs.compressed_cache.data.shape[1] if far else 0,
        "qk_scale": struct.unpack("<i", struct.pack("<f", attention.QK_SCALE))[0],
    }
    build = target.build.key()
    if target.gfx942:
        build["index"] = False
    return Call(rank, "k2", build, arguments)


def _step(target: Target, weights: LayerWeights, inputs: Inputs) -> Step:
    tp = target.build.tp
    return Step(
        tuple(_call(target, r, inputs) for r in range(tp)), _BackCheck(target, weights, inputs)
    )


def _all(checks: list[Check]) -> Check:
    return lambda memory: [c for check in checks for c in check(memory)]


def _reference(
    target: Target, weights: LayerWeights, inputs: Inputs, window: Cache, queries: list[Bounded]
) -> list[Bounded]:
    """The ranks' unreduced attention outputs."""
    keys = front.keys(inputs.keys(target.build.ratio))
    far = inputs.compressed_cache if target.build.ratio else None
    return [
        layer.run_back(
            query,
            keys,
            window,
            far,
            _back_weights(weights, rank),
            inputs.rotation(),
            target.chunk,
            target.build.shard.groups,
        )
        for rank, query in enumerate(queries)
    ]


def _back_weights(weights: LayerWeights, rank: int) -> layer.BackWeights:
    return layer.BackWeights(
        weights.wo_a(rank).values(), weights.wo_b(rank).values(), weights.sink(rank)
    )


def _layer(
    target: Target, weights: LayerWeights, inputs: Inputs, given: Activations
) -> tuple[Inputs, list[int]]:
    """The step's inputs as K1 leaves them for K2, by the reference, and the experts that may be picked."""
    mine = weights.seam("attention")
    x = exact(given.x) if target.build.fold else None
    first = layer.run_seam(x, given.known(), mine.mix, mine.norm)
    queries = []
    for rank in range(target.build.tp):
        used = layer.FrontWeights(
            weights.wqkv().values(),
            weights.q_norm(),
            weights.kv_norm(),
            weights.wq_b(rank).values(),
        )
        result = layer.run_front(exact(first.normed.value), used, inputs.rotation())
        queries.append(exact(result.query.value))
    window = with_records(inputs.window_cache, result.record, inputs.slot)
    parts = _reference(target, weights, inputs, window, queries)
    after = Activations(
        given.x,
        first.residual.value,
        first.mixes.post.value,
        first.mixes.comb.value,
        first.mixes.pre.value,
    )
    needed = candidates(target, weights, after, [exact(p.value) for p in parts])
    return inputs, needed


@dataclass(frozen=True, slots=True)
class _BackCheck:
    """What to compare after K2."""

    target: Target
    weights: LayerWeights
    inputs: Inputs

    def __call__(self, memory: Memory) -> list[Comparison]:
        tp = self.target.build.tp
        half = HalfCheck(self.target, self.target, self.weights)
        ranks = [half.of(memory, r) for r in range(tp)]
        comparisons: list[Comparison] = []
        for m in ranks:
            if _lists_keys(self.target):
                comparisons += k1.key_checks(m, self.target, self.inputs)
            comparisons += self._stages(m, ranks)
            pushed, first = m.attention_parts(), ranks[0].attention_parts()
            comparisons.append(
                equal(
                    f"attention's parts, at rank {m.rank}",
                    pushed.view(torch.int16),
                    first.view(torch.int16),
                )
            )
        queries = [exact(self._query(m)) for m in ranks]
        window = self._window(ranks[0])
        parts = _reference(self.target, self.weights, self.inputs, window, queries)
        return comparisons + half.run(memory, parts)

    def _query(self, m: RankMemory) -> Tensor:
        b = self.target.build
        return m.buffer("q", "bf16", b.tokens, b.shard.heads, HEAD_DIM)

    def _window(self, m: RankMemory) -> Cache:
        before = self.inputs.window_cache
        data = m.data("swa", 0, before.data.numel()).view_as(before.data)
        return Cache(data, before.rows, before.fnuz)

    def _stages(self, m: RankMemory, ranks: list[RankMemory]) -> list[Comparison]:
        b, of = self.target.build, f"rank {m.rank}"
        weights, rotation = _back_weights(self.weights, m.rank), self.inputs.rotation()
        comparisons, outputs = self._chunks(m, weights.sink)
        rotated = attention.unrotate(stack(outputs, 0), rotation)
        width = b.shard.heads * HEAD_DIM
        xo, _ = m.mxfp8("xo", "xos", b.tokens, width)
        steps = e4m3_step(rotated.values.value, rotated.codes)
        comparisons.append(
            compare(f"attention's output, {of}, in MXFP8", xo, rotated.values, "E4M3", steps)
        )
        low = attention.project_groups(weights.wo_a, exact(xo), b.shard.groups)
        x8b, _ = m.mxfp8("x8b", "x8bs", b.tokens, b.shard.groups * O_RANK)
        steps = e4m3_step(low.values.value, low.codes)
        comparisons.append(
            compare(f"output of wo_a, {of}, in MXFP8", x8b, low.values, "E4M3", steps)
        )
        part = attention.project(weights.wo_b, exact(x8b))
        pushed = ranks[0].attention_parts()[m.rank]
        return [*comparisons, compare(f"attention's part, {of}", pushed, part, "bf16")]

    def _chunks(self, m: RankMemory, sink: Tensor) -> tuple[list[Comparison], list[Bounded]]:
        """Compare the chunks' partials, and merge what the kernel left of them."""
        b, of = self.target.build, f"rank {m.rank}"
        count = -(-KEYS // self.target.chunk)
        part = m.plain("part", "bf16", b.tokens, count, b.shard.heads, HEAD_DIM)
        stat = m.plain("pstat", "f32", b.tokens, count, b.shard.heads, 2)
        lengths = m.buffer("klen", "i32", 2 * b.tokens)
        table = m.buffer("kt", "i32", b.tokens, KEYS)
        keys = front.Keys(table, lengths[: b.tokens], lengths[b.tokens :])
        far = self.inputs.compressed_cache if b.ratio else None
        window, query = self._window(m), exact(self._query(m))
        wanted: list[attention.Partial] = []
        left: list[attention.Partial] = []
        outputs = []
        for t in range(b.tokens):
            k, there = attention.key_values(keys, t, window, far)
            chunks = attention.chunks(query[t], k, there, self.target.chunk)
            kept = [
                attention.Partial(
                    exact(part[t, i]), exact(stat[t, i, :, 0]), exact(stat[t, i, :, 1])
                )
                for i in range(len(chunks))
            ]
            outputs.append(attention.combine(kept, sink))
            wanted += chunks
            left += kept
        got, want = _together(left), _together(wanted)
        comparisons = [
            compare(f"chunks' largest score, {of}", got.largest.value, want.largest, "f32"),
            compare(f"chunks' sum of weights, {of}", got.total.value, want.total, "f32"),
            compare(f"chunks' output, {of}", got.output.value, want.output, "bf16"),
        ]
        return comparisons, outputs


def _together(partials: list[attention.Partial]) -> attention.Partial:
    return attention.Partial(
        stack([p.output for p in partials], 0),
        stack([p.largest for p in partials], 0),
        stack([p.total for p in partials], 0),
    )
