"""Measures the runtime and prints a table; see docs/figures.md. Run it through ci/bench/runtime."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from figures import loading
from figures.bench import Bench
from figures.deployment import ONE_WIDTH, deployment_store
from figures.figure import Figure
from figures.session import add_flydsl, add_options, run


def main(arguments: Sequence[str]) -> int:
    """Run the bench. Exit code: 0 all goals met, 1 one missed, else as mono-build's."""
    parser = argparse.ArgumentParser(prog="ci/bench/runtime", description=__doc__)
    add_options(parser)
    add_flydsl(parser)
    options = parser.parse_args(arguments)

    def figures(bench: Bench) -> Iterator[Figure]:
        store = deployment_store(bench, current=False, reduced=ONE_WIDTH)
        return loading.figures(bench, store, options.flydsl)

    return run(options, figures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
