"""Measures the build side and prints a table; see docs/figures.md. Run it through ci/bench/build."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from figures import cold, export_size, objects, plans, rebuild
from figures.bench import Bench
from figures.deployment import deployment_store
from figures.figure import Figure, Verdict
from figures.machine import describe, facts
from figures.process import adopt_orphans
from figures.table import render

from mono_build.errors import INTERRUPTED
from mono_runtime.errors import MonoError


def parts(bench: Bench) -> dict[str, Callable[[], Iterator[Figure]]]:
    """The parts by name; two of them share one store, two one series of runs."""
    store = cache(lambda: deployment_store(bench))
    both = cache(lambda: list(cold.figures(bench)))

    def of_cold(name: str) -> Iterator[Figure]:
        return (f for f in both() if f.part == name)

    return {
        objects.PART: lambda: objects.figures(bench),
        plans.PART: lambda: plans.figures(bench),
        cold.CPU_PART: lambda: of_cold(cold.CPU_PART),
        cold.WALL_PART: lambda: of_cold(cold.WALL_PART),
        rebuild.PART: lambda: rebuild.figures(bench, store()),
        export_size.PART: lambda: export_size.figures(bench, store()),
    }


def main(arguments: Sequence[str]) -> int:
    """Run the parts asked for. Exit code: 0 all goals met, 1 one missed, else as mono-build's."""
    options = _options().parse_args(arguments)
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
            return _run(bench, options.only, options.json)
        except MonoError as error:
            _report(f"error: {error}")
            return error.exit_code
        except KeyboardInterrupt:
            _report("interrupted")
            return INTERRUPTED


def _run(bench: Bench, only: Sequence[str] | None, file: Path | None) -> int:
    adopt_orphans()
    machine = facts(bench)
    found: list[Figure] = []
    for name, measured in parts(bench).items():
        if not only or name in only:
            found += measured()
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


def _options() -> argparse.ArgumentParser:
    names = (
        objects.PART,
        plans.PART,
        cold.CPU_PART,
        cold.WALL_PART,
        rebuild.PART,
        export_size.PART,
    )
    parser = argparse.ArgumentParser(prog="ci/bench/build", description=__doc__)
    parser.add_argument("--only", action="append", choices=names, help="a part; repeatable")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write figures and raw samples")
    parser.add_argument("--kernels", metavar="SOURCE", help="as for mono-build")
    parser.add_argument(
        "--store", type=Path, metavar="DIR", help="a store of the 84 keys instead of building one"
    )
    parser.add_argument("--repeats", type=_positive, default=2, help="rounds (default: 2)")
    parser.add_argument("--quick", action="store_true", help="reduced samples, not judged")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _kernels(spec: str | None) -> str | None:
    # Measured commands run in other directories.
    return str(Path(spec).absolute()) if spec and Path(spec).exists() else spec


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
