"""Measures the emulator and prints a table; see docs/figures.md. Run it through ci/bench/emulator."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from figures import emulating
from figures.session import add_options, run


def main(arguments: Sequence[str]) -> int:
    """Run the bench. Exit code: 0 all goals met, 1 one missed, else as mono-build's."""
    parser = argparse.ArgumentParser(prog="ci/bench/emulator", description=__doc__)
    add_options(parser)
    return run(parser.parse_args(arguments), emulating.figures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
