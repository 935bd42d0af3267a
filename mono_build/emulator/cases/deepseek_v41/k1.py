"""Cases of K1: the attention's seam and front, on one rank (its ranks do not meet)."""

from __future__ import annotations

from collections.abc import Mapping

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
from mono_build.emulator.cases.deepseek_v41 import packing, regions
from mono_build.emulator.cases.deepseek_v41.build import Target
from mono_build.emulator.cases.deepseek_v41.inputs import (
    COMPRESSED_BLOCK,
    Activations,
    activations,
    step,
)
from mono_build.emulator.cases.deepseek_v41.inputs import Step as Inputs
from mono_build.emulator.cases.deepseek_v41.read import RankMemory
from mono_build.emulator.cases.deepseek_v41.rng import Random
from mono_build.emulator.cases.deepseek_v41.weights import LayerWeights
from mono_build.emulator.references.bounded import Bounded, exact
from mono_build.emulator.references.deepseek_v41 import front, layer, seam
from mono_build.emulator.references.deepseek_v41.attention import Cache
from mono_build.emulator.references.deepseek_v41.geometry import (
    HEAD_DIM,
    HIDDEN,
    KEYS,
    NOPE_DIM,
    Q_RANK,
    RECORD_DATA,
    RECORD_GROUP,
    RECORD_SCALES,
    STREAMS,
)
from mono_build.emulator.references.formats import Rule, mxfp8
from mono_build.emulator.references.formats import step as e4m3_step

# The seam's arguments that hold what `seam_buffers` makes, by the launch's names.
SEAM_OUTPUTS = ("res_out", "post_out", "comb_out", "pre_out")


def case(target: Target, seed: int, *, padding: bool = True) -> Case:
    """K1 alone on one rank; ``padding`` makes the last row one."""
    random = Random(seed, "deepseek_v41")
    weights = LayerWeights(target.build, random)
    inputs = step(target, random.of("step"), padding=padding)
    given = activations(target.build.tokens, random.of("attention seam"))
    buffers = {
        **common_buffers(target),
        **input_buffers(target, inputs),
        **k1_buffers(target, 0, weights, given),
    }
    call = k1_call(target, 0, inputs)
    return Case(
        f"k1 {target.build}",
        "deepseek_v41",
        target.arch,
        seed,
        (buffers,),
        (Step((call,), k1_check(target, 0, weights, inputs, given)),),
    )


def common_buffers(target: Target) -> dict[str, Buffer]:
    """What all launches of a rank share: scratch, and the epoch with its marks and counters."""
    words = torch.zeros(regions.EPOCH_WORDS, dtype=torch.int32)
    words[0] = target.epoch
    return {
        "scratch": Buffer(regions.scratch_bytes(target), fill=target.stale),
        "epoch": holding(words),
        "dummy": zeros(16),
    }


def input_buffers(target: Target, inputs: Inputs) -> dict[str, Buffer]:
    """The step's inputs, and the key table that K1 makes for K2."""
    tokens = target.build.tokens
    buffers = {
        "cos_sin": holding(inputs.cos_sin),
        "pos": holding(inputs.position),
        "slot": holding(inputs.slot),
        "swa": holding(inputs.window_cache.data),
        "swa_idx": holding(inputs.window),
        "swa_lens": holding(inputs.window_length),
        "t2r": holding(inputs.request),
        "kt": Buffer(tokens * KEYS * 4, fill=0xA5),
        "klen": Buffer(2 * tokens * 4, fill=0xA5),
        "q": Buffer(tokens * target.build.shard.heads * HEAD_DIM * 2, fill=0xFF),
        # The attention seam's outputs, which K2 takes up.
        "res_mid": Buffer(tokens * STREAMS * HIDDEN * 2, fill=0xFF),
        "post_mid": Buffer(tokens * STREAMS * 4, fill=0xFF),
        "comb_mid": Buffer(tokens * STREAMS * STREAMS * 4, fill=0xFF),
        "pre_mid": Buffer(tokens * STREAMS * 4, fill=0xFF),
    }
    if target.build.ratio:
        buffers |= {
            "comp": holding(inputs.compressed_cache.data),
            "comp_bt": holding(inputs.blocks),
            "topk": holding(inputs.topk),
        }
    return buffers


def key_arguments(target: Target, inputs: Inputs) -> dict[str, int | Address]:
    """The arguments, alike in K1 and K2, that list keys."""
    far = bool(target.build.ratio)
    return {
        "pos": Address("pos"),
        "slot": Address("slot"),
        "swa": Address("swa"),
        "swa_stride": inputs.window_cache.data.shape[1],
        "swa_block": inputs.window_cache.rows,
        "swa_idx": Address("swa_idx"),
        "swa_lens": Address("swa_lens"),
        "comp_block": COMPRESSED_BLOCK if far else 1,
        "comp_bt": Address("comp_bt" if far else "dummy"),
        "bt_stride": inputs.blocks.shape[1] if far else 0,
        "topk": Address("topk" if far else "dummy"),
        "t2r": Address("t2r"),
        "kt": Address("kt"),
        "klen": Address("klen"),
        "cos_sin": Address("cos_sin"),
        "q": Address("q"),
        "scratch": Address("scratch"),
        "epoch": Address("epoch"),
        "tl": 0,
    }


def k1_buffers(
    target: Target, rank: int, weights: LayerWeights, given: Activations
) -> dict[str, Buffer]:
    """K1's weights, the incoming activations, and the outputs that only an index source has."""
    mine = weights.seam("attention")
    wqkv = packing.dense(weights.wqkv(), gfx942=target.gfx942)
    wq_b = packing.dense(weights.wq_b(rank), gfx942=target.gfx942)
    tokens = target.build.tokens
    return {
        "res_in": holding(given.residual),
        "pend": holding(given.x),
        "post_in": holding(given.post),
        "comb_in": holding(given.comb),
        "pre_in": holding(given.pre),
        "hc_attn_fn": holding(mine.mix.fn),
        "hc_attn_scale": holding(mine.mix.scale),
        "hc_attn_base": holding(mine.mix.base),
        "attn_norm": holding(mine.norm),
        "wqkv": holding(wqkv[0]),
        "wqkv_s": holding(wqkv[1]),
        "qn_w": holding(weights.q_norm()),
        "kvn_w": holding(weights.kv_norm()),
        "wqb": holding(wq_b[0]),
        "wqb_s": holding(wq_b[1]),
        "normed": Buffer(tokens * HIDDEN * 2, fill=0xFF),
        "qr": Buffer(tokens * Q_RANK * 2, fill=0xFF),
    }


def k1_call(target: Target, rank: int, inputs: Inputs) -> Call:
    """K1's launch, every argument by its name."""
    own = {
        "hc_fn": Address("hc_attn_fn"),
        "hc_scale": Address("hc_attn_scale"),
        "hc_base": Address("hc_attn_base"),
        "attn_w": Address("attn_norm"),
        "res_out": Address("res_mid"),
        "post_out": Address("post_mid"),
        "comb_out": Address("comb_mid"),
        "pre_out": Address("pre_mid"),
        "normed_out": Address("normed"),
        "qr_out": Address("qr"),
    }
    names = (
        "res_in",
        "pend",
        "post_in",
        "comb_in",
        "pre_in",
        "wqkv",
        "wqkv_s",
        "qn_w",
        "kvn_w",
        "wqb",
        "wqb_s",
    )
    arguments: Mapping[str, int | Address] = {
        **key_arguments(target, inputs),
        **{name: Address(name) for name in names},
        **own,
    }
    return Call(rank, "k1", target.build.key(), arguments)


def k1_check(
    target: Target, rank: int, weights: LayerWeights, inputs: Inputs, given: Activations
) -> Check:
    """Every stage against what the stage before left, then the outputs against the inputs alone."""

    def check(memory: Memory) -> list[Comparison]:
        m = RankMemory(memory, rank, target)
        mine = weights.seam("attention")
        x = exact(given.x) if target.build.fold else None
        comparisons = seam_checks(
            m, "attention", ("res_mid", "post_mid", "comb_mid", "pre_mid"), given, x, mine.mix
        )
        used = layer.FrontWeights(
            weights.wqkv().values(),
            weights.q_norm(),
            weights.kv_norm(),
            weights.wq_b(rank).values(),
        )
        comparisons += _stages(m, target, used, mine.norm, inputs)
        whole = layer.run_seam(x, given.known(), mine.mix, mine.norm)
        result = layer.run_front(whole.normed, used, inputs.rotation())
        comparisons += _outputs(m, target, result, inputs)
        if not target.build.index:
            comparisons += key_checks(m, target, inputs)
        return comparisons

    return check


def seam_checks(
    m: RankMemory,
    name: str,
    outputs: tuple[str, str, str, str],
    given: Activations,
    x: Bounded | None,
    weights: seam.MixWeights,
) -> list[Comparison]:
    """A seam's streams and input from its inputs, and its mixes from the streams that it left."""
    tokens = len(given.x)
    known = given.known()
    streams = m.buffer(outputs[0], "bf16", tokens, STREAMS, HIDDEN)
    want = known.residual
    if x is not None:
        want = seam.fold(x, known.residual, known.post, known.comb)
    mixes = seam.mixes(exact(streams), weights)
    of = f"{name} seam, rank {m.rank}"
    return [
        compare(f"streams of the {of}", streams, want, "bf16"),
        compare(
            f"input of the {of}",
            m.pairs("lin", "bf16", tokens, HIDDEN),
            seam.collapse(exact(streams), known.pre),
            "bf16",
        ),
        compare(
            f"post of the {of}", m.buffer(outputs[1], "f32", tokens, STREAMS), mixes.post, "f32"
        ),
        compare(
            f"comb of the {of}",
            m.buffer(outputs[2], "f32", tokens, STREAMS, STREAMS),
            mixes.comb,
            "f32",
        ),
        compare(f"pre of the {of}", m.buffer(outputs[3], "f32", tokens, STREAMS), mixes.pre, "f32"),
    ]


def _stages(
    m: RankMemory, target: Target, weights: layer.FrontWeights, norm: Tensor, inputs: Inputs
) -> list[Comparison]:
    tokens = target.build.tokens
    normed = seam.norm(exact(m.pairs("lin", "bf16", tokens, HIDDEN)), norm)
    comparisons = mxfp8_checks(m, "normed input", ("x8", "x8s"), normed, Rule.DIVIDE)
    x8 = m.mxfp8("x8", "x8s", tokens, HIDDEN)[0]
    halves = m.pairs("qkvp", "f32", 2, tokens, regions.QKV_ROWS)
    comparisons.append(
        compare("halves of wqkv", halves, front.qkv_halves(weights.wqkv, exact(x8)), "f32")
    )
    q, kv = front.split_qkv(exact(halves))
    rank, _ = front.query_rank(q, weights.q_norm)
    comparisons += mxfp8_checks(m, "query's low rank", ("qx8", "qx8s"), rank, Rule.DIVIDE)
    record = front.kv_record(kv, weights.kv_norm, inputs.rotation())
    comparisons += record_checks(m, target, record, inputs, "KV record")
    qx8 = m.mxfp8("qx8", "qx8s", tokens, Q_RANK)[0]
    query = front.query(weights.wq_b, exact(qx8), inputs.rotation())
    comparisons.append(compare("query", m.buffer("q", "bf16", *query.shape), query, "bf16"))
    if target.build.index:
        comparisons += [
            compare("normed input", m.buffer("normed", "bf16", tokens, HIDDEN), normed, "bf16"),
            compare("query's low rank", m.buffer("qr", "bf16", tokens, Q_RANK), rank, "bf16"),
        ]
    return comparisons


def _outputs(
    m: RankMemory, target: Target, result: layer.Front, inputs: Inputs
) -> list[Comparison]:
    whole = "from the launch's inputs"
    query = m.buffer("q", "bf16", *result.query.shape)
    comparisons = [compare(f"query, {whole}", query, result.query, "bf16")]
    return comparisons + record_checks(m, target, result.record, inputs, f"KV record, {whole}")


def mxfp8_checks(
    m: RankMemory, name: str, places: tuple[str, str], x: Bounded, rule: Rule
) -> list[Comparison]:
    """A plain MXFP8 region [T, K] against the quantised ``x``, in steps of E4M3 under the reference's scale."""
    want = mxfp8(x, rule)
    values, _ = m.mxfp8(*places, *want.values.shape)
    step_size = e4m3_step(want.values.value, want.codes)
    return [compare(f"{name} in MXFP8", values, want.values, "E4M3", step_size)]


def record_checks(
    m: RankMemory, target: Target, record: front.Record, inputs: Inputs, name: str
) -> list[Comparison]:
    """The records of the rows that have a slot, and that nothing else of the cache changed."""
    before = inputs.window_cache
    data = m.data("swa", 0, before.data.numel()).view_as(before.data)
    live = inputs.slot >= 0
    slots = inputs.slot[live]
    values = Cache(data, before.rows, before.fnuz).values(slots)
    wanted = record.nope.values[live]
    steps = e4m3_step(wanted.value, record.nope.codes[live], RECORD_GROUP)
    untouched = torch.ones_like(before.data, dtype=torch.bool)
    for slot in slots.tolist():
        block, row = divmod(slot, before.rows)
        untouched[block, row * RECORD_DATA : (row + 1) * RECORD_DATA] = False
        at = before.rows * RECORD_DATA + row * RECORD_SCALES
        untouched[block, at : at + RECORD_SCALES] = False
    return [
        compare(f"{name}, E4M3 part", values[:, :NOPE_DIM], wanted, "E4M3", steps),
        compare(f"{name}, rotated part", values[:, NOPE_DIM:], record.rope[live], "bf16"),
        equal(f"{name}, rest of the cache", data[untouched], before.data[untouched]),
    ]


def key_checks(m: RankMemory, target: Target, inputs: Inputs) -> list[Comparison]:
    """The key table and its lengths."""
    tokens = target.build.tokens
    want = front.keys(inputs.keys(target.build.ratio))
    lengths = torch.cat([want.length, want.compressed])
    return [
        equal("key table", m.buffer("kt", "i32", tokens, KEYS), want.table),
        equal("key counts", m.buffer("klen", "i32", 2 * tokens), lengths),
    ]
