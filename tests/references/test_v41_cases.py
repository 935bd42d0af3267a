"""What cases hold: every argument by name, layouts where the kernels read them, steps at the edges."""

import pytest
import torch

from mono_build.emulator.cases.case import Address, Case
from mono_build.emulator.cases.compare import compare, equal
from mono_build.emulator.cases.deepseek_v41 import ffn, k1, packing, regions
from mono_build.emulator.cases.deepseek_v41.build import Build, Target
from mono_build.emulator.cases.deepseek_v41.inputs import cache, step, with_records
from mono_build.emulator.cases.deepseek_v41.rng import Random
from mono_build.emulator.cases.deepseek_v41.weights import Dense, LayerWeights, RoutedExpert
from mono_build.emulator.references.bounded import exact, uncertain
from mono_build.emulator.references.deepseek_v41 import front
from mono_build.emulator.references.formats import decode_e4m3

K1 = [
    "res_in",
    "pend",
    "post_in",
    "comb_in",
    "pre_in",
    "hc_fn",
    "hc_scale",
    "hc_base",
    "attn_w",
    "res_out",
    "post_out",
    "comb_out",
    "pre_out",
    "wqkv",
    "wqkv_s",
    "qn_w",
    "kvn_w",
    "wqb",
    "wqb_s",
    "cos_sin",
    "pos",
    "slot",
    "swa",
    "swa_stride",
    "swa_block",
    "q",
    "swa_idx",
    "swa_lens",
    "comp_block",
    "comp_bt",
    "bt_stride",
    "topk",
    "t2r",
    "kt",
    "klen",
    "normed_out",
    "qr_out",
    "scratch",
    "epoch",
    "tl",
]
FFN = [
    "part",
    "res_in",
    "post_in",
    "comb_in",
    "pre_in",
    "hc_fn",
    "hc_scale",
    "hc_base",
    "ffn_w",
    "res_out",
    "post_out",
    "comb_out",
    "pre_out",
    "gate_w",
    "bias",
    "w13",
    "w13_s",
    "w2",
    "w2_s",
    "sgu",
    "sgu_s",
    "sw2",
    "sw2_s",
    "out",
    "scratch",
    "sym",
    "peers",
    "rank",
    "epoch",
    "tl",
]


def _check_addresses(case: Case) -> None:
    for call in case.steps[0].calls:
        for value in call.arguments.values():
            if isinstance(value, Address):
                assert value.offset < case.buffers[call.rank][value.buffer].size


@pytest.mark.parametrize("arch", ["gfx950", "gfx942"])
def test_k1_gets_its_arguments(arch: str):
    case = k1.case(Target(Build(2, 4, ratio=2), arch), 1)
    assert sorted(case.steps[0].calls[0].arguments) == sorted(K1)
    assert len(K1) == 40
    _check_addresses(case)


def test_the_ffn_launch_gets_its_arguments_on_every_rank():
    case = ffn.case(Target(Build(1, 4), "gfx950"), 1)
    assert case.ranks == 4
    assert [sorted(c.arguments) for c in case.steps[0].calls] == [sorted(FFN)] * 4
    assert [c.arguments["rank"] for c in case.steps[0].calls] == [0, 1, 2, 3]
    _check_addresses(case)
    # At least six experts are written, and most are not.
    parts = case.buffers[0]["w13"].parts
    assert 6 <= len(parts) < 20
    assert case.buffers[0]["w13"].size == 384 * 1280 * 2560


def test_a_seed_gives_the_same_inputs_and_another_does_not():
    def residual(seed: int) -> torch.Tensor:
        return k1.case(Target(Build(2, 4), "gfx950"), seed).buffers[0]["res_in"].parts[0].tensor()

    assert torch.equal(residual(5), residual(5))
    assert not torch.equal(residual(5), residual(6))


REGIONS = [
    "xrdy",
    "qkvp",
    "pmix",
    "part",
    "ardy",
    "x8r",
    "route",
    "mids",
    "ugf",
    "normed",
    "xrdy_moe",
    "krdy",
]


@pytest.mark.parametrize(
    ("arch", "tp", "tokens", "offsets"),
    [
        # What vLLM 0.33.0's layer.scratch_layout gives.
        (
            "gfx950",
            4,
            1,
            "5888 6144 57088 89088 183808 184320 208136 222488 223448 224000 234496 234752",
        ),
        (
            "gfx950",
            2,
            24,
            "138240 138752 1353216 2121216 10602752 10603776 11175360 11808960 11850432 11871232 "
            "12117248 12117504",
        ),
        (
            "gfx942",
            4,
            6,
            "34560 34816 338688 530688 1591296 1591808 1734704 1820816 1826576 1829376 1891072 1891328",
        ),
    ],
)
def test_scratch_regions_lie_where_vllm_puts_them(arch: str, tp: int, tokens: int, offsets: str):
    layout = regions.scratch(Target(Build(tokens, tp), arch))
    assert [layout[name][0] for name in REGIONS] == [int(o) for o in offsets.split()]


def _small_dense(rows: int, k: int) -> Dense:
    r = Random(9, rows, k)
    return Dense(
        r.of("c").integers(0, 126, rows, k).to(torch.uint8),
        r.of("s").integers(100, 120, rows // 32, k // 32).to(torch.uint8),
    )


def test_a_dense_copy_for_gfx942_byte_by_byte():
    weight = _small_dense(32, 160)
    weight.codes[3, 7] = 0x80
    data, scales = packing.dense(weight, gfx942=True)
    flat = data.flatten()
    for row in range(32):
        for k in range(160):
            tile, r = divmod(row, 16)
            st, rest = divmod(k, 128)
            block, within = divmod(rest, 32)
            chunk, byte = divmod(within, 8)
            lane = 16 * chunk + r
            at = (
                tile * 16 * 256
                + st * 2048
                + (block // 2) * 1024
                + lane * 16
                + (block % 2) * 8
                + byte
            )
            want = 0 if weight.codes[row, k] == 0x80 else int(weight.codes[row, k])
            assert int(flat[at]) == want
    assert data.shape == (32, 256)
    assert torch.equal(scales[:, :5], weight.scales + 1)
    assert scales[0, 5:].tolist() == [128, 128, 128]


@pytest.fixture(scope="module")
def expert() -> RoutedExpert:
    return LayerWeights(Build(1, 4), Random(3)).expert(2, 17)


def _nibble(packed: torch.Tensor, k: int) -> int:
    return int(packed[k // 2]) >> 4 * (k % 2) & 15


def test_an_expert_for_gfx950_nibble_by_nibble(expert: RoutedExpert):
    made = {
        name: make().flatten()
        for name, make in packing.expert(expert, Target(Build(1, 4), "gfx950")).items()
    }
    gate, up, down = expert.gate.packed, expert.up.packed, expert.down.packed
    samples = (
        Random(4, "rows").integers(0, 576, 60).tolist(),
        Random(4, "k").integers(0, 5120, 60).tolist(),
    )
    for row, k in zip(*samples, strict=True):
        for half, matrix in enumerate((gate, up)):
            tile = 2 * (row // 16) + half  # gate and up alternate by tiles of 16
            at = ((tile * 160 + k // 32) * 16 + row % 16) * 16 + k % 32 // 2
            assert int(made["w13"][at]) >> 4 * (k % 2) & 15 == _nibble(matrix[row], k)
            scales = (expert.gate, expert.up)[half].scales
            packed_row, column = tile * 16 + row % 16, k // 32
            place = packed_row // 32 * 20 + column // 8
            place = (place * 4 + column % 4) * 16 + packed_row % 16
            place = (place * 2 + column // 4 % 2) * 2 + packed_row // 16 % 2
            assert int(made["w13_s"][place]) == int(scales[row, column])
        at = ((k // 16 * 20 + row // 32) * 16 + k % 16) * 16 + row % 32 // 2
        assert int(made["w2"][at]) >> 4 * (row % 2) & 15 == _nibble(down[k], row)


def test_an_expert_for_gfx942_nibble_by_nibble(expert: RoutedExpert):
    made = {
        name: make().flatten()
        for name, make in packing.expert(expert, Target(Build(1, 4), "gfx942")).items()
    }
    samples = (
        Random(4, "rows").integers(0, 576, 60).tolist(),
        Random(4, "k").integers(0, 5120, 60).tolist(),
    )
    for row, k in zip(*samples, strict=True):
        for half, matrix in enumerate((expert.gate, expert.up)):
            tile, r = divmod(2 * row + half, 16)
            st, rest = divmod(k, 128)
            block, within = divmod(rest, 32)
            lane = 16 * (within // 8) + r
            at = tile * 16 * 2560 + st * 1024 + lane * 16 + block * 4 + within % 8 // 2
            want = _nibble(matrix.packed[row], k)
            assert int(made["w13"][at]) >> 4 * (k % 2) & 15 == (0 if want == 8 else want)
            rounds, column = divmod(k // 32, 8)
            assert int(made["w13_s"][tile * 16 * 160 + rounds * 128 + r * 8 + column]) == int(
                matrix.scales[row, k // 32]
            )
        # The last half step of the 576 K of a down row: 8 bytes a lane.
        tile, r = divmod(k, 16)
        st, rest = divmod(row, 128)
        block, within = divmod(rest, 32)
        size = 8 if st == 4 else 16
        at = (
            tile * 16 * 288
            + st * 1024
            + (16 * (within // 8) + r) * size
            + block * 4
            + within % 8 // 2
        )
        want = _nibble(expert.down.packed[k], row)
        assert int(made["w2"][at]) >> 4 * (row % 2) & 15 == (0 if want == 8 else want)


@pytest.mark.parametrize("fnuz", [False, True])
def test_a_record_written_into_a_cache_is_read_back(fnuz: bool):
    torch.manual_seed(1)
    before = cache(3, 4, Random(2), fnuz=fnuz)
    rows = torch.cat([torch.ones(5, 32), torch.zeros(5, 32)], 1)
    record = front.kv_record(
        exact(torch.randn(5, 512).bfloat16()), torch.ones(512).bfloat16(), rows
    )
    slots = torch.tensor([0, 11, -1, 6, 7])
    after = with_records(before, record, slots)
    live = slots >= 0
    got = after.values(slots[live])
    assert torch.equal(got[:, :448], record.nope.values.value[live])
    assert torch.equal(got[:, 448:], record.rope.value[live])
    others = torch.tensor([1, 2, 3, 4, 5, 8, 9, 10])
    assert torch.equal(after.values(others), before.values(others))
    assert (
        not decode_e4m3(after.data[:, : 4 * 576].view(3, 4, 576)[..., :448], fnuz=fnuz)
        .isnan()
        .any()
    )


def test_a_step_has_rows_at_the_edges_and_padding():
    target = Target(Build(48, 4, ratio=2), "gfx950")
    got = step(target, Random(1), padding=True)
    assert {0, 1, 127, 128, 1022, 1023, 3000} <= set(got.position.tolist())
    assert got.slot[-1].item() == -1
    assert len(set(got.slot[:-1].tolist())) == 47
    keys = front.keys(got.keys(2))
    # The edges of both lists: no compressed key, fewer than 512, all; a full table.
    assert {0, 512} <= set(keys.compressed.tolist())
    assert keys.length.max().item() == 640
    assert keys.length[-1].item() == 0
    # The window of a row ends with its own slot.
    for t in range(47):
        assert keys.table[t, keys.length[t] - 1].item() == got.slot[t].item()
    first = got.position.tolist().index(0)
    assert bool((keys.table[first, 1:] == -1).all())


def test_a_comparison_counts_in_units_and_knows_its_tolerance():
    want = uncertain(
        torch.tensor([1.0, 4.0, 2.0]).double(), torch.tensor([0.0, 0.05, 0.0]).double()
    )
    passed = compare("x", torch.tensor([1.0, 4.0 + 2.0**-5, 2.0]), want, "bf16")
    assert passed.passed
    assert (passed.differing, passed.error, passed.where) == (1, 1.0, (1,))
    failed = compare("x", torch.tensor([1.0, 4.0, 2.0 + 2.0**-6]), want, "bf16")
    assert not failed.passed
    assert failed.where == (2,)
    assert not compare("x", torch.tensor([torch.nan, 4.0, 2.0]), want, "bf16").passed
    assert not equal("x", torch.tensor([1, 2]), torch.tensor([1, 3])).passed
