"""A wrong manifest gets every problem in one go, each at its line and column."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mono_build.errors import ManifestError, NotFound, UsageError
from mono_build.manifest import load_manifests

MISTAKES = """\
schema: 2
tolchain: {flydsl: 0.5.0}
toolchain:
  flydsl: 0.5
  lld: new
  ziglang: "0.13"
builds:
  - family: deepseek_v5
    arch: gfx950
  - family: deepseek_v41
    arch: [gfx9999, gfx942]
    tp: 2
  - family: kimi_k3
    arch: gfx942
    tp: four
  - arch: gfx950
  - family: deepseek_v41
    arch: gfx950
    tp: 4
    rows: [6, 49, 6, x]
    rows: [12]
    deployment:
      speculative_token: 5
      draft: maybe
      max_num_seqs: 0
      performance_mode: interactive
  - family: deepseek_v4
    arch: gfx950
    tp: 8
    rows: 64
    variants:
      - launch: k1
        ratio: 128
        two_hop: false
      - launch: k3
        ratio: 4
      - launch: k2
        ratio: 5
        hash_rout: true
      - launch: k2
    include: []
  - family: deepseek_v41
    arch: gfx950
    tp: 4
    deployment: {speculative_tokens: 0, draft: true}
  - family: minimax_m3
    arch: gfx950
    include:
      - rows: [1, 2]
      - launch: ffn
        experts: shared
    exclude:
      - rows: [1, 2, 3]
  - family: minimax_m3
    arch: gfx950
    rows: [4]
    exclude:
      - launch: ffn
  - family: deepseek_v41
    arch: gfx942
    rows: [42, 43]
  - just text
"""
EXPECTED = """\
1:9: schema 2 is newer than this mono-build, which reads 1 (upgrade it)
2:1: unknown key 'tolchain' in a manifest (did you mean 'toolchain'?)
4:11: flydsl must be text, not 0.5 (quote it)
5:8: lld 'new' is no version (write '0.5.0' or '>=0.4.2,<0.6')
6:3: unknown key 'ziglang' in toolchain (known: flydsl, lld, kernels, python)
8:13: unknown family 'deepseek_v5' (did you mean 'deepseek_v4'?)
11:12: unknown architecture 'gfx9999' (did you mean gfx950? known: gfx942, gfx950)
12:9: deepseek_v41 on gfx942 is built for TP 4 only, not 2: vLLM prepares the gfx942 weight copies for TP 4 only
14:11: kimi_k3 is not built for gfx942: vLLM refuses it there, and K2 aborts LLVM (no scaled MFMA on CDNA3)
15:9: tp must be an integer, not 'four'
16:5: family is missing (known: FAMILIES)
20:15: rows 49 is too large (nearest: 48)
20:19: rows 6 is listed twice
20:22: rows must be an integer, not 'x'
21:5: 'rows' is given twice (first on line 20)
23:7: unknown setting 'speculative_token' in the deployment of deepseek_v41 (did you mean 'speculative_tokens'?)
24:14: draft must be true or false, not 'maybe'
25:21: max_num_seqs 0 is too small (nearest: 1)
26:25: performance_mode 'interactive' is not legal (did you mean 'interactivity'?)
32:9: two_hop must be true at 64 tokens (true from 42 on)
35:17: launch 'k3' is not legal (known: k1, k2)
38:16: ratio 5 is not legal (nearest: 4)
39:9: unknown build field 'hash_rout' in a variant (did you mean 'hash_route'?)
40:9: ratio is missing from the build key
41:14: include is an empty list
45:17: the deployment: draft needs speculative_tokens of at least 1
50:9: this include matches none of 16 launches
54:5: include and exclude leave none of 1 launches: an empty plan
61:16: tokens 43 is too large for gfx942 (nearest: 42)
62:5: a build must be a mapping, not 'just text'
"""


def problems_of(path: Path, text: str | bytes) -> list[str]:
    """The problems of a manifest with this text, without the file's name."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ManifestError) as caught:
        load_manifests([str(path)])
    return [p.removeprefix(f"{path}:") for p in caught.value.problems]


def test_thirty_mistakes_are_reported_together(tmp_path: Path) -> None:
    found = problems_of(tmp_path / "bad.yaml", MISTAKES)
    # The list of known families depends on what is installed.
    found = [
        f.partition("deepseek_v41, deepseek_v4,")[0] + "FAMILIES)" if f.startswith("16:") else f
        for f in found
    ]
    assert found == EXPECTED.splitlines()


def test_the_message_has_the_file_and_the_count(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("schema: 1\n")
    with pytest.raises(ManifestError) as caught:
        load_manifests([str(path)])
    assert str(caught.value) == (
        f"1 problem in the manifest\n{path}:1:1: builds is missing: a manifest lists what to build"
    )
    assert caught.value.exit_code == 2


def test_problems_of_several_manifests_come_together(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("schema: 1\nbuilds: [{family: minimax_m3, arch: gfx942}]\n")
    second.write_text("schema: 1\nbuilds: 3\n")
    with pytest.raises(ManifestError) as caught:
        load_manifests([str(first), "quick", str(second)])
    assert [p.split(": ")[0] for p in caught.value.problems] == [f"{first}:2:37", f"{second}:2:9"]


BUILD = "schema: 1\nbuilds:\n- family: minimax_m3\n  arch: gfx950\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("schema: 1\nbuilds: [\n", "3:1: bad YAML: expected the node content, but found '<stream end>'"),
        ("schema: 1\n\tbuilds: []\n", "2:1: bad YAML: found character '\\t' that cannot start any token"),
        ("schema: 1\nbuilds: *nothing\n", "2:9: bad YAML: found undefined alias 'nothing'"),
        ("", "1:1: an empty manifest"),
        ("# nothing\n", "1:1: an empty manifest"),
        (b"schema: 1\nbuilds: \xff\n", "2:9: not UTF-8 text"),
        ("schema: 1\nbuilds: \x00\n", "2:9: bad YAML: a character that is not allowed"),
        ("- schema: 1\n", "1:1: a manifest must be a mapping, not a list"),
        ("schema: one\nbuilds: []\n", "1:9: schema must be an integer, not 'one'"),
        ("schema: 0\nbuilds: []\n", "1:9: schema 0 is not legal (nearest: 1)"),
        ("schema:\nbuilds: []\n", "1:8: schema must be an integer, not nothing"),
        ("schema: 1\nbuilds: []\n", "2:9: builds is an empty list"),
        (BUILD + "  tp: {a: 4}\n", "5:7: tp must be a list, not a mapping"),
        (BUILD + "  rows: 1.5\n", "5:9: rows must be an integer, not 1.5"),
        (BUILD + "  rows: true\n", "5:9: rows must be an integer, not true"),
        (BUILD + "  rows: " + "9" * 5000 + "\n", "5:9: rows must be an integer, not '" + "9" * 56 + "..."),
        (BUILD + "  rows: !!python/name:os.system x\n", "5:9: rows must be an integer, not 'x'"),
        (BUILD + "  rows: 2024-01-01\n", "5:9: rows must be an integer, not '2024-01-01'"),
        (BUILD + "  1: 2\n", "5:3: a key of a build must be text, not '1'"),
        (BUILD + "  <<: 3\n", "5:7: << must name a mapping"),
        (BUILD + "  include: [{}]\n", "5:13: an item of include names no field"),
        (BUILD + "  deployment: {drafts: 1}\n", "5:16: unknown setting 'drafts' in the deployment of minimax_m3 (there are none)"),
        (BUILD + "  variants: [{experts: all, qlen: 8}]\n", "5:29: unknown build field 'qlen' in a variant (known: launch, experts, timeline, drop_mark, wait_ticks)"),
    ],
)  # fmt: skip
def test_each_kind_of_mistake_has_its_place(
    tmp_path: Path, text: str | bytes, expected: str
) -> None:
    assert expected in problems_of(tmp_path / "bad.yaml", text)


def test_k3_rows_must_be_whole_requests(tmp_path: Path) -> None:
    text = "schema: 1\nbuilds:\n- {family: kimi_k3, arch: gfx950, rows: [8, 4]}\n"
    assert problems_of(tmp_path / "k3.yaml", text) == [
        "3:45: tokens 4 is not a multiple of qlen 8 (nearest: 8)"
    ]


def test_contradicting_pins_name_each_other(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(BUILD + 'toolchain: {flydsl: "0.5.0"}\n')
    second.write_text(BUILD + 'toolchain: {flydsl: "0.4.2"}\n')
    with pytest.raises(ManifestError) as caught:
        load_manifests([str(first), str(second)])
    assert caught.value.problems == (
        f"{second}:5:21: flydsl '0.4.2' contradicts '0.5.0' at {first}:5:21",
    )


BOMB = "a: &a0 {ratio: 0, launch: k1}\n" + "".join(
    f"b{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)
MERGE_BOMB = "a: &a0 {arch: gfx950}\n" + "".join(
    f"b{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 12)
)
ENTRY = "{family: deepseek_v41, arch: gfx950, tp: 4, deployment: {eager: true}}"


@pytest.mark.parametrize(
    "text",
    [
        BOMB + "schema: 1\nbuilds: *a11\n",
        MERGE_BOMB + "schema: 1\nbuilds: [*a11]\n",
        "schema: 1\nbuilds: &a [*a]\n",
        "schema: 1\nbuilds: [&a {<<: *a, family: minimax_m3}]\n",
        "schema: 1\nbuilds: " + "[" * 5000 + "]" * 5000 + "\n",
        "schema: 1\nbuilds: " + "{a: " * 5000 + "1" + "}" * 5000 + "\n",
        "schema: 1\n" + "#" * 200_000 + "\n",
        f"schema: 1\nbuilds: [&e {ENTRY}{', *e' * 5000}]\n",
        f"schema: 1\nbuilds: [&e {ENTRY}{', *e' * 200}]\n",
        "schema: 1\nbuilds:\n- {family: kimi_k3, arch: gfx950, variants: [{launch: k2, fault_ticks: "
        + f"{list(range(200))}, fault_layer: {list(range(200))}, nblocks: [1, 2, 3, 4]"
        + "}]}\n",
    ],
)
def test_bombs_and_giants_end_soon(tmp_path: Path, text: str) -> None:
    started = time.process_time()
    assert problems_of(tmp_path / "bomb.yaml", text)
    # Expanding any of them takes minutes or for ever; seconds leave room for a slow machine.
    assert time.process_time() - started < 10


def test_a_missing_file_and_an_unknown_name_are_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no such manifest"):
        load_manifests([str(tmp_path / "none.yaml")])
    with pytest.raises(NotFound) as caught:
        load_manifests(["quik"])
    assert caught.value.fix == "name a file, or a ready manifest (did you mean 'quick'?)"


def test_a_directory_is_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the manifest cannot be read: Is a directory"):
        load_manifests([f"{tmp_path}/"])
