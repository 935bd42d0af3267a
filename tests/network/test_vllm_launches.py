"""vLLM 0.33.0's real launches: what is built has the figures that were measured on other machines.

The expected figures are those of the project's reference table of these launches, taken with
FlyDSL 0.5.0 before this project existed. They need the vLLM wheel: from ``MONO_TEST_KERNELS`` (a
wheel or a tree), else fetched into ``MONO_CACHE`` once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command import environment, run

from mono_runtime.artefact import Artefact
from mono_runtime.oci import StoreReader

pytestmark = [pytest.mark.network, pytest.mark.slow]

# (family, launch, architecture, rows, further fields) -> bytes of instructions, VGPRs, bytes of LDS
# and of kernel arguments, VGPR spills and bytes of scratch.
FIGURES = [
    (
        "deepseek_v41",
        "k1",
        "gfx950",
        8,
        {"ratio": 2, "fold": True, "index": False},
        (22784, 152, 51520, 320, 0, 0),
    ),
    (
        "deepseek_v41",
        "k1",
        "gfx950",
        8,
        {"ratio": 2, "fold": True, "index": True},
        (22016, 152, 51520, 320, 0, 0),
    ),
    (
        "deepseek_v41",
        "k1",
        "gfx950",
        8,
        {"ratio": 0, "fold": False},
        (21440, 152, 51520, 320, 0, 0),
    ),
    (
        "deepseek_v41",
        "k2",
        "gfx950",
        8,
        {"ratio": 2, "fold": True, "index": False},
        (75904, 246, 96640, 432, 0, 0),
    ),
    (
        "deepseek_v41",
        "k2",
        "gfx950",
        8,
        {"ratio": 2, "fold": True, "index": True},
        (77504, 246, 96640, 432, 0, 0),
    ),
    (
        "deepseek_v41",
        "k2",
        "gfx950",
        8,
        {"ratio": 1, "index": True},
        (77440, 246, 96640, 432, 0, 0),
    ),
    ("deepseek_v41", "ffn", "gfx950", 8, {}, (58560, 238, 85408, 240, 0, 0)),
    (
        "deepseek_v41",
        "k1",
        "gfx942",
        6,
        {"ratio": 2, "fold": True, "index": False},
        (27904, 154, 42752, 320, 0, 0),
    ),
    ("deepseek_v4", "k1", "gfx950", 8, {"ratio": 4, "fold": True}, (25088, 170, 63040, 320, 0, 0)),
    (
        "deepseek_v4",
        "k2",
        "gfx950",
        8,
        {"ratio": 4, "fold": True},
        (83648, 256, 103840, 432, 13, 56),
    ),
    ("kimi_k3", "k1", "gfx950", 8, {"nblocks": 4}, (25408, 204, 123008, 216, 0, 0)),
    ("kimi_k3", "k2", "gfx950", 8, {"nblocks": 4}, (72896, 217, 132256, 216, 0, 0)),
    ("minimax_m3", "ffn", "gfx950", 1, {}, (28480, 174, 39104, 156, 0, 0)),
    ("minimax_m3", "ffn", "gfx950", 16, {}, (28800, 174, 39104, 156, 0, 0)),
]
# vLLM's launchers take these 32-bit integers; everything else is a 64-bit address or stride.
NARROW = {
    ("deepseek_v41", "k1"): (40, {24: "swa_block", 28: "comp_block", 30: "bt_stride"}),
    ("deepseek_v41", "k2"): (
        54,
        {3: "swa_block", 6: "comp_block", 15: "bt_stride", 18: "qk_scale", 51: "rank"},
    ),
    ("deepseek_v41", "ffn"): (30, {27: "rank"}),
    ("deepseek_v4", "k1"): (40, {24: "swa_block", 28: "comp_block", 30: "bt_stride"}),
    ("kimi_k3", "k2"): (28, {4: "blk_sm", 5: "blk_sr", 23: "rank", 25: "layer"}),
    ("minimax_m3", "ffn"): (20, {15: "rank", 17: "handshake", 19: "mode"}),
}
SIZES = {"deepseek_v41": 4, "deepseek_v4": 8, "kimi_k3": 8, "minimax_m3": 4}


@pytest.fixture(scope="session")
def built(
    tmp_path_factory: pytest.TempPathFactory, cache: str, kernels: list[str]
) -> tuple[Path, Any]:
    """A store with every launch of `FIGURES`, built by one manifest, and the build's report."""
    directory = tmp_path_factory.mktemp("vllm")
    lines = ["schema: 1", "builds:"]
    for family, launch, arch, rows, fields, _ in FIGURES:
        values = "".join(f", {n}: {str(v).lower()}" for n, v in fields.items())
        lines += [
            f"  - family: {family}\n    arch: {arch}\n    tp: {SIZES[family]}\n    rows: [{rows}]",
            f"    variants:\n      - {{launch: {launch}{values}}}",
        ]
    manifest = directory / "m.yaml"
    manifest.write_text("\n".join(lines) + "\n")
    store = directory / "store"
    arguments = ["build", "--store", str(store), "--manifest", str(manifest), "--json", *kernels]
    result = run(arguments, environment(directory, MONO_CACHE=cache), timeout=1800)
    assert result.code == 0, result.err
    return store, result.json


def artefact(
    store: Path, family: str, launch: str, arch: str, rows: int, fields: dict[str, object]
) -> Artefact:
    reader = StoreReader.open(store)
    wanted = {"tokens": rows, **fields}
    (entry,) = [
        e
        for e in reader.index.entries
        if (e.key.family, e.key.launch, e.key.arch) == (family, launch, arch)
        and wanted.items() <= e.key.values.items()
    ]
    return reader.artefact(entry.artefact)


@pytest.mark.parametrize(("family", "launch", "arch", "rows", "fields", "expected"), FIGURES)
def test_resource_figures_are_the_measured_ones(
    built: tuple[Path, Any],
    family: str,
    launch: str,
    arch: str,
    rows: int,
    fields: dict[str, object],
    expected: tuple[int, ...],
) -> None:
    found = artefact(built[0], family, launch, arch, rows, fields)
    (code,) = found.code_objects
    (kernel,) = code.kernels
    assert (
        code.text_size,
        kernel.vgpr,
        kernel.lds,
        kernel.kernarg,
        kernel.vgpr_spills,
        kernel.scratch,
    ) == expected
    (dispatch,) = found.plan.dispatches
    assert found.plan.persistent
    assert [getattr(e, "value", None) for e in (*dispatch.grid, *dispatch.block)] == [
        256,
        1,
        1,
        512,
        1,
        1,
    ]


@pytest.mark.parametrize(("family", "launch"), sorted(NARROW))
def test_arguments_are_those_of_vllms_launchers(
    built: tuple[Path, Any], family: str, launch: str
) -> None:
    count, narrow = NARROW[(family, launch)]
    case = next(f for f in FIGURES if f[:2] == (family, launch))
    plan = artefact(built[0], *case[:5]).plan
    assert len(plan.arguments) == count
    assert plan.stream == "stream"
    found = {i: a.name for i, a in enumerate(plan.arguments) if a.type == "i32"}
    assert found == narrow
    assert {a.type for a in plan.arguments} <= {"i32", "i64"}


# Bytes by `mono_build.emulator.cases.deepseek_v41.regions`, which was worked out apart from vLLM's code.
WORKSPACE = {
    "k1": ("scratch", "epoch"),
    "k2": ("scratch", "sym", "epoch"),
    "ffn": ("scratch", "sym", "epoch"),
}


@pytest.mark.parametrize("launch", sorted(WORKSPACE))
def test_memory_that_v41_s_kernels_need_is_recorded(built: tuple[Path, Any], launch: str) -> None:
    from mono_build.emulator.cases.deepseek_v41 import regions
    from mono_build.emulator.cases.deepseek_v41.build import Build, Target

    case = next(f for f in FIGURES if f[:3] == ("deepseek_v41", launch, "gfx950"))
    sizes = {
        "scratch": regions.scratch_bytes(Target(Build(8, 4), "gfx950")),
        "sym": 2 * regions.peer_half(4),
        "epoch": 4 * regions.EPOCH_WORDS,
    }
    found = artefact(built[0], *case[:5]).plan.workspace
    assert [(w.argument, w.size) for w in found] == [(n, sizes[n]) for n in WORKSPACE[launch]]


def test_one_width_of_v41_is_twelve_keys_eleven_objects_and_nine_machine_codes(
    tmp_path: Path, cache: str, kernels: list[str]
) -> None:
    arguments = [
        "build",
        "--manifest",
        "quick",
        "--store",
        str(tmp_path / "s"),
        "--json",
        *kernels,
    ]
    result = run(arguments, environment(tmp_path, MONO_CACHE=cache), timeout=1800)
    assert result.code == 0, result.err
    report = result.json
    assert (report["planned"], report["compiled"], report["reused"]) == (12, 11, 1)
    assert (report["code_objects"], report["machine_codes"]) == (11, 9)
    again = run(arguments, environment(tmp_path, MONO_CACHE=cache))
    assert (again.json["traced"], again.json["reused"]) == (0, 12)
    verified = run(["verify", "--store", str(tmp_path / "s")], environment(tmp_path))
    assert verified.code == 0, verified.out
