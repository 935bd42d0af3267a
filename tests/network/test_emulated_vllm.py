"""vLLM 0.33.0's real launches on the emulator: they match the references, and wrong ones do not.

A part that fits into CI; ``ci/emulate`` runs the rest. The counts of wave-instructions are those that
another emulator had found before this one existed.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from command import environment, run
from elftools.elf.elffile import ELFFile

from mono_build.emulator import execute as executing
from mono_build.emulator.cases.case import Case, Part
from mono_build.emulator.code import decoded
from mono_build.emulator.driver import EmulatedDriver
from mono_build.emulator.engine import Schedule
from mono_build.emulator.execute import Execution, Outcome, execute, execute_case, maker_for
from mono_build.emulator.objects import read_object
from mono_runtime.launch_key import LaunchKey
from mono_runtime.oci import StoreReader

pytestmark = [pytest.mark.network, pytest.mark.slow]

# (launch, architecture, TP size, rows, further fields), devices, millions of wave-instructions, outputs
# that have to be among those that were compared.
LAUNCHES = {
    "k1-gfx950": (
        ("k1", "gfx950", 4, 8, {"ratio": 2, "fold": True, "index": False}),
        1,
        1.7,
        {"streams of the attention seam, rank 0", "query", "KV record, E4M3 part", "key table"},
    ),
    "k1-gfx950-index": (
        ("k1", "gfx950", 4, 8, {"ratio": 1, "fold": True, "index": True}),
        1,
        1.7,
        {"query", "KV record, rotated part", "normed input", "query's low rank"},
    ),
    "k1-gfx942": (
        ("k1", "gfx942", 4, 1, {"ratio": 0, "fold": False, "index": False}),
        1,
        1.7,
        {"query", "KV record, E4M3 part", "KV record, rest of the cache", "key counts"},
    ),
    "ffn-gfx950": (
        ("ffn", "gfx950", 4, 1, {"ratio": 0, "fold": True, "index": False}),
        4,
        16.6,
        {f"output, rank {rank}" for rank in range(4)} | {"router's sums, rank 3"},
    ),
    "k2-gfx950": (
        ("k2", "gfx950", 2, 4, {"ratio": 2, "fold": True, "index": False}),
        2,
        21.0,
        {f"output, rank {rank}" for rank in range(2)} | {"attention's part, rank 1"},
    ),
}
# What waiting adds depends on the schedule.
INSTRUCTIONS = 0.15
SEED = 1
# AMD's "CDNA3 Instruction Set Architecture", VOP1: bits 16 to 9 are the operation.
V_RCP_F32, V_RSQ_F32 = 34, 36


@pytest.fixture(scope="module")
def launches(
    tmp_path_factory: pytest.TempPathFactory, cache: str, kernels: list[str]
) -> Callable[[str], tuple[Path, LaunchKey]]:
    """The store with every launch of `LAUNCHES`, and the key of one by its name."""
    directory = tmp_path_factory.mktemp("emulated")
    lines = ["schema: 1", "builds:"]
    for (launch, arch, tp, rows, fields), *_ in LAUNCHES.values():
        values = "".join(f", {n}: {str(v).lower()}" for n, v in fields.items())
        lines += [
            f"  - family: deepseek_v41\n    arch: {arch}\n    tp: {tp}\n    rows: [{rows}]",
            f"    variants:\n      - {{launch: {launch}{values}}}",
        ]
    manifest = directory / "m.yaml"
    manifest.write_text("\n".join(lines) + "\n")
    store = directory / "store"
    arguments = ["build", "--store", str(store), "--manifest", str(manifest), *kernels]
    result = run(arguments, environment(directory, MONO_CACHE=cache), timeout=1800)
    assert result.code == 0, result.err
    keys = [e.key for e in StoreReader.open(store).index.entries]

    def find(name: str) -> tuple[Path, LaunchKey]:
        launch, arch, tp, rows, fields = LAUNCHES[name][0]
        wanted = {"tp": tp, "tokens": rows, **fields}
        (key,) = [
            k
            for k in keys
            if (k.launch, k.arch) == (launch, arch) and wanted.items() <= k.values.items()
        ]
        return store, key

    return find


@pytest.fixture(autouse=True)
def _kept_translations(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONO_CACHE", cache)


def failing(found: Execution) -> set[str]:
    """The outputs that do not pass."""
    return {c.name for c, _ in found.outputs() if not c.passed}


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_launch_matches_its_reference_under_an_isa_model(
    launches: Callable[[str], tuple[Path, LaunchKey]], name: str
) -> None:
    _, devices, millions, outputs = LAUNCHES[name]
    found = execute(*launches(name), SEED, (Schedule(),))
    assert found.stops() == []
    assert failing(found) == set()
    assert found.outcome is Outcome.MATCHES
    assert found.ranks == devices
    assert outputs <= {c.name for c, _ in found.outputs()}
    assert all(c.elements > 0 for c, _ in found.outputs())
    assert found.figures is not None
    assert found.figures.total.instructions / 1e6 == pytest.approx(millions, rel=INSTRUCTIONS)


def changed(case: Case, rank: int, name: str, change: Callable[[torch.Tensor], None]) -> Case:
    """``case`` with other bytes in each part of a buffer; its checks still expect the old ones."""

    def make(part: Part) -> Callable[[], torch.Tensor]:
        def made() -> torch.Tensor:
            before = part.tensor().contiguous().flatten().view(torch.uint8)
            after = before.clone()
            change(after)
            assert (after != before).sum() == 1
            return after

        return made

    buffer = case.buffers[rank][name]
    planted = replace(buffer, parts=tuple(Part(p.offset, make(p)) for p in buffer.parts))
    buffers = [dict(of_rank) for of_rank in case.buffers]
    buffers[rank][name] = planted
    return replace(case, buffers=tuple(buffers))


def other_sign(data: torch.Tensor) -> None:
    """One weight of a matrix negated.

    A code's last bit would be less than what the order of a sum of 2560 products may change.
    """
    data[len(data) // 2] ^= 0x80


def next_scale(data: torch.Tensor) -> None:
    """The next power of two for one group."""
    data[len(data) // 2] += 1


@pytest.mark.parametrize(
    ("name", "rank", "buffer", "change", "noticed"),
    [
        ("k1-gfx942", 0, "wqkv", other_sign, "halves of wqkv"),
        ("k1-gfx942", 0, "wqkv_s", next_scale, "halves of wqkv"),
        ("k1-gfx942", 0, "wqb_s", next_scale, "query"),
        # In every expert that may be picked.
        ("ffn-gfx950", 3, "w2_s", next_scale, "experts' part, rank 3"),
    ],
)
def test_one_wrong_byte_of_a_weight_is_noticed_where_it_is_used(
    launches: Callable[[str], tuple[Path, LaunchKey]],
    name: str,
    rank: int,
    buffer: str,
    change: Callable[[torch.Tensor], None],
    noticed: str,
) -> None:
    store, key = launches(name)
    case = changed(maker_for(key.family, key.launch)(key, SEED), rank, buffer, change)
    found = execute_case(store, key, case, (Schedule(),))
    assert found.outcome is Outcome.DIFFERS
    # Stages are compared with what the stage before left, so the ones before and after it still pass.
    from_inputs = {n for n in failing(found) if "from the launch's inputs" in n}
    assert failing(found) - from_inputs == {noticed}


def with_one_operation_exchanged(code: bytes) -> bytes:
    """The first reciprocal square root in a code object made a reciprocal."""
    image = read_object(code)
    place = next(i for i in decoded(image) if i.mnemonic == "v_rsq_f32")
    section = ELFFile(io.BytesIO(code)).get_section_by_name(".text")
    at = section["sh_offset"] + place.address - image.address
    (word,) = struct.unpack_from("<I", code, at)
    assert (word >> 9 & 0xFF, place.words) == (V_RSQ_F32, (word,))
    patched = bytearray(code)
    struct.pack_into("<I", patched, at, word - (V_RSQ_F32 << 9) + (V_RCP_F32 << 9))
    return bytes(patched)


class _PatchedDriver(EmulatedDriver):
    def load_module(self, device: int, code: bytes) -> int:
        return super().load_module(device, with_one_operation_exchanged(code))


def test_one_wrong_instruction_is_noticed(
    launches: Callable[[str], tuple[Path, LaunchKey]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executing, "EmulatedDriver", _PatchedDriver)
    found = execute(*launches("k1-gfx942"), SEED, (Schedule(),))
    assert found.outcome is Outcome.DIFFERS
    assert failing(found)
