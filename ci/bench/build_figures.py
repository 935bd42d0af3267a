"""Measures the build side and prints a table; see docs/figures.md. Run it through ci/bench/build."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from figures import cold, export_size, objects, plans, rebuild
from figures.bench import Bench
from figures.deployment import deployment_store
from figures.figure import Figure
from figures.session import add_options, run

_PARTS = (
    objects.PART,
    plans.PART,
    cold.CPU_PART,
    cold.WALL_PART,
    rebuild.PART,
    export_size.PART,
)


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
    parser = argparse.ArgumentParser(prog="ci/bench/build", description=__doc__)
    parser.add_argument("--only", action="append", choices=_PARTS, help="a part; repeatable")
    add_options(parser)
    options = parser.parse_args(arguments)

    def figures(bench: Bench) -> Iterator[Figure]:
        for name, measured in parts(bench).items():
            if not options.only or name in options.only:
                yield from measured()

    return run(options, figures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
