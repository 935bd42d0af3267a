"""docs/manifests.md and docs/families.md against the families: examples, counts, tables, the outside family."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs_pages import ROOT, page, table_after

from mono_build.errors import ManifestError
from mono_build.families.registry import family
from mono_build.manifest import load_manifests, plan_for, ready_manifests
from mono_build.plan import Selection
from mono_runtime.families.fields import Field

MANIFESTS = page("docs/manifests.md")
FAMILIES = page("docs/families.md")
EXAMPLES = MANIFESTS.blocks("yaml")
BUILT_IN = ("deepseek_v41", "deepseek_v4", "kimi_k3", "minimax_m3")
WORDS = {int: "integer", bool: "boolean", float: "number", str: "text"}


def planned(path: Path) -> int:
    return len(plan_for(load_manifests([str(path)]), Selection()))


def test_the_ready_manifests_are_listed_with_their_launches() -> None:
    rows = table_after(MANIFESTS.text, "installed with the package:")
    listed = {row["name"].strip("`"): int(row["launches"]) for row in rows}
    assert listed == {n: len(plan_for(load_manifests([n]), Selection())) for n in ready_manifests()}


def test_there_are_examples_of_every_key_of_a_build() -> None:
    keys = [r["key"].strip("`") for r in table_after(MANIFESTS.text, "A build:")]
    assert keys == [
        "family", "arch", "tp", "deployment", "rows", "variants", "include", "exclude",
    ]  # fmt: skip
    assert all(any(f"{key}:" in example for example in EXAMPLES) for key in keys)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_every_example_is_a_manifest_that_plans_something(number: int, tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text(EXAMPLES[number])
    assert planned(path) > 0


def test_every_count_after_an_example_is_that_of_its_plan(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    found = re.findall(r"```yaml\n([^`]*)```\n\n(\d+) launches", MANIFESTS.text)
    assert len(found) == 5
    for example, count in found:
        path.write_text(example)
        assert planned(path) == int(count), example


def test_the_readme_s_example_is_a_manifest(tmp_path: Path) -> None:
    (example,) = page("README.md").blocks("yaml")
    path = tmp_path / "server.yaml"
    path.write_text(example)
    assert planned(path) == 84


def test_the_wrong_example_gives_the_message_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (wrong,) = MANIFESTS.blocks("yaml wrong")
    (shown,) = [b for b in MANIFESTS.blocks("text") if b.startswith("error: ")]
    monkeypatch.chdir(tmp_path)
    Path("wrong.yaml").write_text(wrong)
    with pytest.raises(ManifestError) as caught:
        load_manifests(["wrong.yaml"])
    assert f"error: {caught.value}\n" == shown


def spelt(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def expected_row(field: Field) -> dict[str, str]:
    kind = f"list of {WORDS[field.type]}s" if field.many else WORDS[field.type]
    default = (
        "empty"
        if field.many
        else "required"
        if field.default is None
        else f"`{spelt(field.default)}`"
    )
    return {"field": f"`{field.name}`", "type": kind, "default": default, "meaning": field.doc}


def legal_numbers(field: Field) -> list[float]:
    bounds = [field.minimum, field.maximum, field.multiple if field.multiple > 1 else None]
    return [b for b in bounds if b is not None]


def check(rows: list[dict[str, str]], fields: tuple[Field, ...]) -> None:
    legal = [row.pop("legal") for row in rows]
    assert rows == [expected_row(f) for f in fields]
    for text, field in zip(legal, fields, strict=True):
        choices = re.findall(r"`([^`]+)`", text)
        if field.type is bool:
            assert choices == ["true", "false"], field.name
        else:
            assert choices == [spelt(c) for c in field.choices], field.name
            numbers = [float(n) for n in re.findall(r"-?\d+", text)] if not choices else []
            assert numbers == legal_numbers(field), field.name


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_tables_of_a_family_agree_with_its_fields(name: str) -> None:
    section, described = MANIFESTS.section(name), family(name)
    if described.deployment_fields:
        check(table_after(section, f"`deployment` of {name}:"), described.deployment_fields)
    else:
        assert f"`deployment` of {name} has no settings" in section
    for spec in described.launches:
        (line,) = re.findall(rf"^Build fields of {name} .*`{spec.name}`.*:$", section, re.MULTILINE)
        check(table_after(section, line), spec.fields)


DEPLOYMENTS: tuple[dict[str, object], ...] = (
    {},
    {"speculative_tokens": 0},
    {"speculative_tokens": 3},
    {"max_num_seqs": 2},
    {"capture_sizes": (6, 12, 24, 48)},
    {"speculative_tokens": 0, "performance_mode": "interactivity"},
    {"max_capture_size": 24},
    {"cudagraph_mode": "FULL_DECODE_ONLY"},
    {"eager": True},
)


def widths_of(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in text.split(", "):
        first, _, last = part.partition(" to ")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def test_the_table_of_deployments_has_their_widths_and_launches() -> None:
    rows = table_after(FAMILIES.text, "works\n   it out from a server's configuration.")
    described = family("deepseek_v41")
    for row, settings in zip(rows, DEPLOYMENTS, strict=True):
        deployment = described.deployment("gfx950", 4, settings)  # type: ignore[arg-type]
        assert widths_of(row["widths"]) == described.widths(deployment), row
        assert int(row["launches"]) == len(described.deployment_keys(deployment)), row


@pytest.fixture
def outside(tmp_path: Path) -> dict[str, str]:
    """An environment in which the example family of docs/families.md is installed."""
    kernels, described = FAMILIES.blocks("python")
    (tmp_path / "example_kernels").mkdir()
    (tmp_path / "example_kernels" / "__init__.py").touch()
    (tmp_path / "example_kernels" / "fill.py").write_text(kernels)
    (tmp_path / "example_family.py").write_text(described)
    (entry,) = re.findall(r"^example = \"(.*)\"$", FAMILIES.blocks("toml")[0], re.MULTILINE)
    info = tmp_path / "example-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: example\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[mono_build.families]\nexample = {entry}\n")
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    kept = {n: os.environ[n] for n in ("PATH", "HOME", "LD_LIBRARY_PATH") if n in os.environ}
    return {**kept, "PYTHONPATH": path}


def mono_build(environ: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "mono_build", *arguments],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_family_from_outside_plans(outside: dict[str, str], tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    text = mono_build(outside, "plan", "--arch", "gfx950", "--family", "example", "--store", store)
    assert text.splitlines()[-1] == "4 launches: 4 to compile, 0 to reuse, 0 unknown"


@pytest.mark.flydsl
def test_the_family_from_outside_builds(outside: dict[str, str], tmp_path: Path) -> None:
    place = ("--store", str(tmp_path / "store"))
    text = mono_build(outside, "--arch", "gfx950", "--family", "example", "--rows", "2", *place)
    assert text.splitlines()[0] == "1 launch planned: 1 compiled, 0 reused, 0 failed"
    shown = mono_build(outside, "inspect", *place)
    assert "dispatch  example_fill_2_0\n  grid (2, 1, 1) block (64, 1, 1), 8 B" in shown
