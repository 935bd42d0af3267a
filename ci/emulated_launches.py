"""Executes launches of a store on the emulator, a process each, and prints a table; run it through ci/emulate."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
MANIFEST = PROJECT / "ci" / "emulated.yaml"
FAMILY = "deepseek_v41"
SELECTIONS = ("--arch", "--tp", "--launch", "--rows")
# An output's comparison with the launch's inputs alone carries the stages' deviations along.
WHOLE = "from the launch's inputs"
# Columns of largest errors: (heading, format, of outputs compared with the launch's inputs).
ERRORS = (
    ("bf16", "bf16", False),
    ("f32", "f32", False),
    ("E4M3", "E4M3", False),
    ("whole bf16", "bf16", True),
    ("whole E4M3", "E4M3", True),
)
HEADER = (
    "launch",
    "ranks",
    "instructions",
    "seconds",
    "whole command",
    "outputs",
    *(heading for heading, _, _ in ERRORS),
    "of tolerance",
    "result",
)


class CommandFailed(Exception):
    """mono-build ended with an exit code that is no answer."""

    def __init__(self, arguments: Sequence[str], code: int) -> None:
        super().__init__(f"mono-build {' '.join(arguments)} failed with exit code {code}")
        self.code = code


def main(arguments: Sequence[str]) -> int:
    """Build if need be, execute, print. Exit code: 0 all match, 1 something does not."""
    options = _parser().parse_args(arguments)
    selection = [
        word
        for name in SELECTIONS
        for value in getattr(options, name.strip("-")) or ()
        for word in (name, value)
    ]
    try:
        with tempfile.TemporaryDirectory(prefix="mono-emulate-") as scratch:
            store = options.store or _built(Path(scratch) / "store", options.kernels, selection)
            found = _execute_all(store, selection, options.seed, options.schedules, options.json)
    except CommandFailed as failure:
        print(f"error: {failure}", file=sys.stderr)
        return failure.code
    print(render(found))
    return int(any(launch["outcome"] != "matches" for launch in found))


def render(launches: Iterable[Mapping[str, Any]]) -> str:
    """The table of executed launches, as `mono-build verify --execute --json` describes them."""
    rows = [HEADER, *(_row(launch) for launch in launches)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    rule = tuple("-" * width for width in widths)
    lines = (
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in (rows[0], rule, *rows[1:])
    )
    return "\n".join(f"| {line} |" for line in lines)


def _row(launch: Mapping[str, Any]) -> tuple[str, ...]:
    outputs = launch["outputs"]
    figures = launch["figures"]
    # An output without a finite share has one that must be exact and is not, or a NaN.
    shares = [o["excess"] for o in outputs]
    share = "infinite" if None in shares else f"{max(shares, default=0.0):.3g}"
    return (
        _name(launch["key"]),
        str(launch["ranks"]),
        f"{figures['instructions']:,}" if figures else "-",
        f"{sum(run['seconds'] for run in launch['runs']):.1f}",
        f"{launch['wall']:.0f} s",
        str(len(outputs)),
        *(_largest(outputs, form, whole) for _, form, whole in ERRORS),
        share if outputs else "-",
        launch["outcome"],
    )


def _largest(outputs: Iterable[Mapping[str, Any]], form: str, whole: bool) -> str:
    errors = [o["error"] for o in outputs if o["format"] == form and (WHOLE in o["name"]) == whole]
    if not errors:
        return "-"
    return "infinite" if None in errors else f"{max(errors):.3g}"


def _name(key: Mapping[str, Any]) -> str:
    build = key["build"]
    rows = build["tokens"]
    words = [key["launch"], key["arch"]]
    # A key list serves every TP size and every ratio.
    words += [f"TP {build['tp']}"] if "tp" in build else []
    words.append(f"{rows} row{'s' * (rows != 1)}")
    if "ratio" in build and key["launch"] != "ffn":
        words.append(f"ratio {build['ratio']}")
        words += [name for name in ("fold", "index") if build[name]]
    return " ".join(words)


def _execute_all(
    store: Path, selection: Sequence[str], seed: int, schedules: int, file: Path | None
) -> list[dict[str, Any]]:
    listed = _answer("ls", "--store", str(store), "--family", FAMILY, *selection)
    keys = sorted(listed["launches"], key=lambda entry: _order(entry["key"]))
    found: list[dict[str, Any]] = []
    for number, entry in enumerate(keys, start=1):
        _say(f"[{number}/{len(keys)}] {_name(entry['key'])}")
        found.append(_executed(store, entry["key_digest"], seed, schedules))
        if file is not None:
            file.write_text(json.dumps({"launches": found}, indent=1) + "\n")
        _say(f"    {found[-1]['outcome']}, {found[-1]['wall']:.0f} s")
    return found


def _order(key: Mapping[str, Any]) -> tuple[Any, ...]:
    """Key lists first, then K1, FFN and K2: the cheap ones first."""
    build = key["build"]
    launch = ("keylist", "k1", "ffn", "k2").index(key["launch"])
    variant = [build.get(name, 0) for name in ("ratio", "index")]
    return launch, build["tokens"], key["arch"], -build.get("tp", 0), *variant


def _executed(store: Path, digest: str, seed: int, schedules: int) -> dict[str, Any]:
    """One launch in a process of its own, which gives back gigabytes when it ends."""
    options = ("--store", str(store), "--execute", "--key", digest)
    start = time.monotonic()
    answer = _answer("verify", *options, "--seed", str(seed), "--schedules", str(schedules))
    (launch,) = answer["executed"]["launches"]
    return {**launch, "wall": round(time.monotonic() - start, 1)}


def _built(store: Path, kernels: str | None, selection: Sequence[str]) -> Path:
    source = ["--kernels", kernels] if kernels else []
    _say(f"building the launches of {MANIFEST.relative_to(PROJECT)}")
    _answer("build", "--manifest", str(MANIFEST), "--store", str(store), *selection, *source)
    return store


def _answer(*arguments: str) -> dict[str, Any]:
    """The JSON answer of ``mono-build ARGUMENTS``; `verify` tells its verdict in its exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "mono_build", *arguments, "--json"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise CommandFailed(arguments, done.returncode or 1) from None
    if done.returncode and not answer.get("executed"):
        raise CommandFailed(arguments, done.returncode)
    return answer


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ci/emulate", description=__doc__)
    parser.add_argument("--store", type=Path, metavar="DIR", help="instead of building one")
    parser.add_argument("--kernels", metavar="SOURCE", help="as for mono-build")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep everything that was found")
    parser.add_argument("--seed", type=int, default=1, help="of the inputs (default: 1)")
    parser.add_argument("--schedules", type=int, default=1, help="schedules a launch (default: 1)")
    for name in SELECTIONS:
        parser.add_argument(name, action="append", help="as for mono-build; repeatable")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
