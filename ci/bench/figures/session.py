"""One run of a bench: its common options, the table on standard output, the JSON, the exit code."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from figures.bench import Bench
from figures.figure import Figure, Verdict
from figures.machine import describe, facts
from figures.process import adopt_orphans
from figures.table import render
from mono_build.errors import INTERRUPTED
from mono_runtime.errors import MonoError


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that every bench has."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write figures and raw samples")
    parser.add_argument("--kernels", metavar="SOURCE", help="as for mono-build")
    parser.add_argument(
        "--store",
        type=Path,
        metavar="DIR",
        help="a store that has the launches instead of building one",
    )
    parser.add_argument("--repeats", type=_positive, default=2, help="rounds (default: 2)")
    parser.add_argument("--quick", action="store_true", help="reduced samples, not judged")


def add_flydsl(parser: argparse.ArgumentParser) -> None:
    """The option that names what a bench compares with."""
    parser.add_argument(
        "--flydsl",
        action="append",
        type=Path,
        required=True,
        metavar="PYTHON",
        help="a Python that has torch and a version of FlyDSL to compare with; repeatable",
    )


def run(options: argparse.Namespace, figures: Callable[[Bench], Iterable[Figure]]) -> int:
    """Measure and print. Exit code: 0 all goals met, 1 one missed, else as mono-build's."""
    with tempfile.TemporaryDirectory(prefix="mono-bench-") as scratch:
        bench = Bench(
            scratch=Path(scratch).resolve(),
            kernels=_kernels(options.kernels),
            store=options.store and options.store.absolute(),
            repeats=options.repeats,
            quick=options.quick,
            report=_report,
        )
        try:
            return _run(bench, figures, options.json)
        except MonoError as error:
            _report(f"error: {error}")
            return error.exit_code
        except KeyboardInterrupt:
            _report("interrupted")
            return INTERRUPTED


def _run(bench: Bench, figures: Callable[[Bench], Iterable[Figure]], file: Path | None) -> int:
    adopt_orphans()
    machine = facts(bench)
    found = list(figures(bench))
    print(describe(machine), render(found), sep="\n\n")
    if bench.quick:
        print("\nReduced samples (--quick): they show that the bench works and are not judged.")
    if file is not None:
        answer = {
            "machine": machine,
            "reduced": bench.quick,
            "figures": [f.to_json() for f in found],
        }
        file.write_text(json.dumps(answer, indent=2) + "\n")
    return int(any(f.verdict is Verdict.MISSED for f in found))


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _kernels(spec: str | None) -> str | None:
    # Measured commands run in other directories.
    return str(Path(spec).absolute()) if spec and Path(spec).exists() else spec


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
