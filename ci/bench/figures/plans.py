"""How many keys each deployment plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from figures.bench import Bench
from figures.figure import Bound, Figure, Goal

PART = "plans"


@dataclass(frozen=True, slots=True)
class Case:
    """A deployment, and how many keys it has (beyond those of ``beyond``, when that is named)."""

    name: str
    family: str
    arch: str
    tp: int
    keys: int
    settings: dict[str, int | str] = field(default_factory=dict)
    beyond: str | None = None


CASES = (
    Case("V4.1 gfx950 TP 4, 5 drafts", "deepseek_v41", "gfx950", 4, 84, {"speculative_tokens": 5}),
    Case(
        "V4.1 gfx950 TP 4, no drafts", "deepseek_v41", "gfx950", 4, 108, {"speculative_tokens": 0}
    ),
    Case(
        "V4.1 gfx950 TP 4, the draft's own",
        "deepseek_v41",
        "gfx950",
        4,
        28,
        {"speculative_tokens": 5, "draft": "true"},
        beyond="V4.1 gfx950 TP 4, 5 drafts",
    ),
    Case(
        "V4.1 gfx942 TP 4, 5 drafts (vLLM's 60, our 6)",
        "deepseek_v41",
        "gfx942",
        4,
        66,
        {"speculative_tokens": 5},
    ),
    Case(
        "V4.1 gfx942 TP 4, the draft's own",
        "deepseek_v41",
        "gfx942",
        4,
        6,
        {"speculative_tokens": 5, "draft": "true", "max_num_seqs": 7},
        beyond="V4.1 gfx942 TP 4, 5 drafts (vLLM's 60, our 6)",
    ),
    Case("V4 gfx950 TP 8, 6 drafts", "deepseek_v4", "gfx950", 8, 80, {"speculative_tokens": 6}),
    Case("V4 gfx950 TP 8, no drafts", "deepseek_v4", "gfx950", 8, 110, {"speculative_tokens": 0}),
    Case("Kimi-K3 gfx950 TP 8, 7 drafts", "kimi_k3", "gfx950", 8, 30, {"speculative_tokens": 7}),
    Case("Kimi-K3 gfx950 TP 8, 3 drafts", "kimi_k3", "gfx950", 8, 60, {"speculative_tokens": 3}),
    Case("Kimi-K3 gfx950 TP 8, 1 draft", "kimi_k3", "gfx950", 8, 120, {"speculative_tokens": 1}),
    Case("MiniMax-M3 gfx950 TP 4", "minimax_m3", "gfx950", 4, 16),
)


def figures(bench: Bench) -> Iterator[Figure]:
    """A row for each deployment of the table, planned through the command line."""
    bench.report(f"planning {len(CASES)} deployments")
    planned: dict[str, set[str]] = {}
    for case in CASES:
        manifest = bench.directory("manifest") / "deployment.yaml"
        manifest.write_text(manifest_text(case))
        keys = {k["key_digest"] for k in bench.planned("--manifest", str(manifest))}
        planned[case.name] = keys
        counted = keys - planned[case.beyond] if case.beyond else keys
        yield Figure(PART, case.name, len(counted), "keys", goal=Goal(case.keys, Bound.EXACT))
    # What the command line plans with no manifest at all is the deployment with five drafts.
    bare = {k["key_digest"] for k in bench.planned("--arch", "gfx950", "--tp", "4")}
    differing = len(bare ^ planned[CASES[0].name])
    what = "keys in which `--arch gfx950 --tp 4` differs from 5 drafts"
    yield Figure(PART, what, differing, "keys", goal=Goal(0, Bound.EXACT))


def manifest_text(case: Case) -> str:
    """The manifest that asks for the deployment of ``case``."""
    lines = [
        "schema: 1",
        "builds:",
        f"  - family: {case.family}",
        f"    arch: {case.arch}",
        f"    tp: {case.tp}",
    ]
    if case.settings:
        lines.append("    deployment:")
        lines += [f"      {name}: {value}" for name, value in case.settings.items()]
    return "\n".join(lines) + "\n"
