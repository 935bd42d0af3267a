"""V4.1's stages against independent float64 formulations and hand-worked cases."""

import math

import torch

from mono_build.emulator.references.bounded import Bounded, exact, uncertain
from mono_build.emulator.references.deepseek_v41 import attention, experts, front, router, seam
from mono_build.emulator.references.deepseek_v41.geometry import Shard, chunk_keys

HIDDEN = 5120


def _near(got: Bounded, want: torch.Tensor, least: float = 0.0) -> None:
    """Within the reference's own bound plus the rounding that the formulation does not have."""
    assert bool(((got.value - want).abs() <= got.bound + least).all())


def _sinkhorn(logits: list[list[float]]) -> list[list[float]]:
    rows = [[math.exp(x - max(r)) for x in r] for r in logits]
    rows = [[x / sum(r) + 1e-6 for x in r] for r in rows]
    for turn in range(20):
        if turn:
            rows = [[x / (sum(r) + 1e-6) for x in r] for r in rows]
        columns = [sum(r[j] for r in rows) + 1e-6 for j in range(4)]
        rows = [[x / columns[j] for j, x in enumerate(r)] for r in rows]
    return rows


def test_sinkhorn_is_the_iteration_and_its_bound_covers_a_disturbed_start():
    torch.manual_seed(1)
    logits = torch.randn(6, 4, 4).double() * 2
    error = 1e-4
    got = seam.sinkhorn(uncertain(logits, torch.full_like(logits, error)))
    want = torch.tensor([_sinkhorn(m) for m in logits.tolist()], dtype=torch.float64)
    assert torch.allclose(got.value, want, rtol=1e-12)
    for _ in range(40):
        moved = logits + error * (torch.randint(0, 2, logits.shape) * 2 - 1)
        _near(got, torch.tensor([_sinkhorn(m) for m in moved.tolist()], dtype=torch.float64))
    clean = seam.sinkhorn(exact(logits))
    assert float((clean.bound / clean.value).max()) < 3e-4


def test_a_fold_of_streams_by_hand():
    x = torch.tensor([[2.0]])
    residual = torch.tensor([[[1.0], [10.0], [100.0], [1000.0]]])
    post = torch.tensor([[1.0, 0.5, 0.0, 2.0]])
    comb = torch.zeros(1, 4, 4)
    comb[0, 0, 1] = 1.0  # from stream 0 to stream 1
    comb[0, 3, 2] = 0.5  # from stream 3 to stream 2
    got = seam.fold(exact(x), exact(residual), exact(post), exact(comb))
    assert got.value.flatten().tolist() == [2.0, 2.0, 500.0, 4.0]
    assert not got.bound.any()


def test_a_fold_is_the_mixing_matrix_in_float64():
    torch.manual_seed(2)
    x, residual = torch.randn(3, 64).bfloat16(), torch.randn(3, 4, 64).bfloat16()
    post, comb = torch.rand(3, 4), torch.rand(3, 4, 4)
    got = seam.fold(exact(x), exact(residual), exact(post), exact(comb))
    want = torch.einsum("tho,thd->tod", comb.double(), residual.double())
    want = want + post.double()[..., None] * x.double()[:, None]
    assert torch.equal(got.value.bfloat16(), got.value.float().bfloat16())
    assert float((got.value - want).abs().max()) <= 2.0**-8 * float(want.abs().max())


def test_a_collapse_starts_at_zero_and_adds_in_order():
    residual = torch.tensor([[[1.0], [2.0**-12], [-1.0], [0.5]]])
    got = seam.collapse(exact(residual), exact(torch.ones(1, 4)))
    assert got.value.item() == float(torch.tensor(0.5 + 2.0**-12).bfloat16())


def test_mixes_are_sigmoids_of_normed_projections():
    torch.manual_seed(3)
    residual = torch.randn(2, 4, HIDDEN).bfloat16()
    # Weights that two bfloat16 hold exactly, so that the split is not a rounding.
    fn = (torch.randn(24, 4 * HIDDEN) / 143).bfloat16().float()
    weights = seam.MixWeights(fn, torch.tensor([0.5, 1.0, 1.5]), torch.randn(24))
    got = seam.mixes(exact(residual), weights)
    flat = residual.double().flatten(1)
    logits = flat @ fn.double().T / flat.square().mean(1, keepdim=True).sqrt()
    base = weights.base.double()
    _near(got.pre, torch.sigmoid(logits[:, :4] * 0.5 + base[:4]) + 1e-6, 1e-7)
    _near(got.post, torch.sigmoid(logits[:, 4:8] + base[4:8]) * 2, 1e-7)
    comb = (logits[:, 8:] * 1.5 + base[8:]).view(2, 4, 4).tolist()
    _near(got.comb, torch.tensor([_sinkhorn(m) for m in comb], dtype=torch.float64))
    assert float(got.pre.bound.max()) < 2e-5


def test_norms_are_root_mean_square_norms():
    torch.manual_seed(4)
    x, w = torch.randn(3, HIDDEN).bfloat16(), torch.rand(HIDDEN).bfloat16()
    want = x.double() / x.double().square().mean(1, keepdim=True).sqrt() * w.double()
    got = seam.norm(exact(x), w)
    assert float(((got.value - want) / want.abs().clamp(min=1e-6)).abs().max()) <= 2.0**-8 + 1e-6
    short = front.rms_norm(exact(x[:, :1280]), w[:1280])
    want = x[:, :1280].double()
    want = want / want.square().mean(1, keepdim=True).sqrt() * w[:1280].double()
    assert float(((short.value - want) / want.abs().clamp(min=1e-6)).abs().max()) <= 2.0**-8 + 1e-6
    assert float((got.bound > 0).double().mean()) < 0.01


def test_rotation_is_multiplication_by_a_complex_unit_and_undone_by_the_inverse():
    torch.manual_seed(5)
    x = torch.randn(4, 3, 64)
    angle = torch.randn(4, 32).double()
    rows = torch.cat([angle.cos(), angle.sin()], 1).float()
    got = front.rotate(exact(x), rows)
    turned = torch.view_as_complex(x.double().view(4, 3, 32, 2)) * torch.exp(1j * angle)[:, None]
    assert torch.allclose(got.value, torch.view_as_real(turned).flatten(2), atol=1e-6)
    back = front.rotate(got, rows, inverse=True)
    assert torch.allclose(back.value, x.double(), atol=1e-6)
    assert not got.bound.any()


def test_a_record_of_a_unit_row_by_hand():
    kv = torch.ones(1, 512)
    angle = torch.zeros(1, 32)
    angle[0, 0] = math.pi / 2
    rows = torch.cat([angle.cos(), angle.sin()], 1)
    got = front.kv_record(exact(kv), torch.full((512,), 2.0).bfloat16(), rows)
    assert got.nope.values.value.tolist() == [[2.0] * 448]
    # 2 / 448 = 2^-7.8 needs 2^-7.
    assert got.nope.codes.tolist() == [[120] * 7]
    # A quarter turn of the first pair (2, 2) is (-2, 2).
    assert got.rope.value[0, :4].tolist() == [-2.0, 2.0, 2.0, 2.0]


def test_keys_are_the_selection_then_the_window_then_nothing():
    given = front.KeyInputs(
        slot=torch.tensor([70, 71, -1]),
        position=torch.tensor([6, 7, 0]),
        window=torch.tensor([[5, 6, 7, -1], [6, 7, 8, 9], [1, 2, 3, 4]]),
        window_length=torch.tensor([3, 4, 4]),
        ratio=2,
        topk=torch.tensor([[2, -1, 0, 9], [3, 1, 2, 0], [0, 1, 2, 3]]),
        request=torch.tensor([0, 1, 0]),
        blocks=torch.tensor([[4, 3], [8, 2]]),
        block_rows=2,
    )
    got = front.keys(given)
    high = -(2**31)
    # Row 2 of request 0 is the first of its block 1, page 3: slot 6; row 0 is slot 8.
    assert got.table[0, :8].tolist() == [high + 6, -1, high + 8, 5, 6, 7, -1, -1]
    # Position 7 has four rows: 3 -> page 2, 1 -> page 8, 2 -> page 2, 0 -> page 8.
    assert got.table[1, :8].tolist() == [high + 5, high + 17, high + 4, high + 16, 6, 7, 8, 9]
    assert got.length.tolist() == [6, 8, 0]
    assert got.compressed.tolist() == [3, 4, 0]
    assert bool((got.table[2] == -1).all())


def test_attention_is_softmax_with_a_sink_whatever_the_chunks():
    torch.manual_seed(6)
    q, k, sink = torch.randn(5, 512).bfloat16(), torch.randn(150, 512).bfloat16(), torch.randn(5)
    there = torch.ones(150, dtype=torch.bool)
    there[[3, 77]] = False
    there[64:128] = False  # a whole chunk of 64
    scores = (q.double() @ k.double().T) * 512**-0.5
    scores[:, ~there] = -torch.inf
    weights = torch.softmax(torch.cat([scores, sink.double()[:, None]], 1), 1)[:, :150]
    want = weights @ k.double()
    k = torch.where(there[:, None], k, 0).double()
    for size in (64, 128):
        parts = attention.chunks(exact(q), k, there, size)
        got = attention.combine(parts, sink)
        # Weights and partials are bfloat16: 2^-9 each, relative to sums of magnitudes.
        scale = weights @ k.abs()
        assert float(((got.value - want).abs() / scale).max()) < 3 * 2.0**-8
    empty = attention.chunks(exact(q), k, there, 64)[1]
    assert empty.total.value.tolist() == [0.0] * 5
    assert empty.largest.value.tolist() == [-3.4028234663852886e38] * 5


def test_a_padding_row_attends_to_nothing():
    got = attention.combine([], torch.zeros(16))
    assert got.value.shape == (16, 512)
    assert not got.value.any()


def test_ranks_are_added_in_order_in_float32():
    parts = [exact(torch.tensor([x]).bfloat16()) for x in (2.0**30, -(2.0**30), 1.0, 2.0**-9)]
    assert attention.reduce_ranks(parts).value.item() == 1.0
    swapped = [parts[2], parts[0], parts[1], parts[3]]
    assert attention.reduce_ranks(swapped).value.item() == 2.0**-9


def test_scores_are_the_root_of_softplus():
    x = torch.linspace(-8, 30, 77)
    got = router.scores(exact(x))
    want = torch.nn.functional.softplus(x.double()).sqrt()
    _near(got, want, 1e-7)
    assert float(got.bound.max()) < 1e-5


def test_picks_are_the_best_with_the_bias_but_weighed_without_it():
    raw = torch.full((1, 384), -5.0)
    raw[0, [7, 200, 300]] = torch.tensor([2.0, 1.0, 0.5])
    bias = torch.zeros(384)
    bias[300], bias[11] = 5.0, 4.0
    got = router.route(exact(raw), bias, 3)
    assert got.experts.tolist() == [[300, 11, 7]]
    score = [math.sqrt(math.log1p(math.exp(x))) for x in (0.5, -5.0, 2.0)]
    want = torch.tensor([[1.5 * s / sum(score) for s in score]]).double()
    _near(got.weights, want, 1e-6)


def test_ties_go_to_the_lower_lane_then_the_lower_expert():
    ranked = torch.zeros(1, 384)
    ranked[0, [64, 130, 2, 3, 128]] = 1.0  # lanes 0, 2, 2, 3, 0
    assert router.best(exact(ranked), 5).tolist() == [[64, 128, 2, 130, 3]]
    assert router.possible(exact(ranked), torch.tensor([[64, 128, 2, 130, 3]])).tolist() == [True]
    assert router.possible(exact(ranked), torch.tensor([[128, 64, 2, 130, 3]])).tolist() == [False]


def test_a_choice_within_the_bounds_is_possible_and_another_is_not():
    ranked = uncertain(
        torch.tensor([[3.0, 2.0, 1.99, 1.0]]).double(), torch.full((1, 4), 0.01).double()
    )
    allowed = [[0, 1], [0, 2]]
    refused = [[0, 3], [1, 0], [0, 0], [1, 2]]
    for picks in allowed:
        assert router.possible(ranked, torch.tensor([picks])).tolist() == [True]
    for picks in refused:
        assert router.possible(ranked, torch.tensor([picks])).tolist() == [False]


def test_a_routed_expert_is_swiglu_with_its_limits():
    torch.manual_seed(7)
    w = experts.Expert(torch.randn(64, 96), torch.randn(64, 96), torch.randn(96, 64))
    x = torch.randn(3, 96)
    got = experts.routed_middle(w, exact(x))
    gate = (x.double() @ w.gate.double().T).clamp(max=10)
    up = (x.double() @ w.up.double().T).clamp(-10, 10)
    want = gate * torch.sigmoid(gate) * up
    assert bool((up.abs() == 10).any())
    # E4M3 has a relative error of 2^-4, and a group's smallest values an absolute one.
    assert bool(
        ((got.values.value - want).abs() <= want.abs() * 2.0**-4 + want.abs().max() * 2.0**-8).all()
    )
    shared = experts.shared_activation(w, exact(x))
    # A bfloat16 step of the gate changes silu by up to its own size more, where the gate is negative.
    allowed = want.abs() * (2 + gate.abs()) * 2.0**-8 + 1e-9
    assert bool(((shared.value - want).abs() <= allowed).all())


def test_a_ranks_part_is_rounded_at_every_sum():
    step = 2.0**-8  # half of bfloat16's spacing above 1
    parts = [exact(torch.tensor([x])) for x in (1.0, step, step)]
    assert experts.add_up(parts, exact(torch.tensor([0.0]))).value.item() == 1.0
    assert experts.add_up(parts[::-1], exact(torch.tensor([0.0]))).value.item() == 1.0 + 2 * step


def test_chunks_of_keys():
    assert [chunk_keys("gfx950", 4, t) for t in (1, 48)] == [128, 128]
    assert [chunk_keys("gfx950", 2, t) for t in (25, 26)] == [64, 128]
    assert chunk_keys("gfx942", 4, 48) == 64
    assert Shard(4).inter_padded == 640
    assert Shard(2).inter_padded == Shard(2).inter == 1152
