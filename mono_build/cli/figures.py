"""Figures of executed launches, for people."""

from __future__ import annotations

from mono_build.cli.output import Output, amount, size
from mono_build.emulator.figures import Figures, LaunchFigures

# Stages that are shown; --json has all.
_STAGES = 12


def show_figures(output: Output, figures: Figures, of: str) -> None:
    """What was executed and moved, in three lines."""
    classes = sorted(figures.classes.items(), key=lambda x: -x[1])
    listed = ", ".join(f"{name} {count:,}" for name, count in classes if count)
    output.text(f"  {figures.instructions:,} wave-instructions ({of}): {listed}")
    output.text(
        f"  global memory {size(figures.global_read)} read, {size(figures.global_written)} written;"
        f" LDS {size(figures.lds_read)} read, {size(figures.lds_written)} written;"
        f" {figures.multiply_adds:,} multiply-adds in matrix instructions;"
        f" {figures.polls:,} polls"
    )


def show_launch(output: Output, found: LaunchFigures) -> None:
    """The figures of a launch with its largest stages."""
    of = f"seed {found.seed}, {amount(found.ranks, 'rank')}, {found.schedule}"
    output.text()
    output.text("executed under an ISA model")
    show_figures(output, found.total, of)
    rows = [
        (
            f"  0x{s.start:x}",
            s.size,
            s.figures.instructions,
            s.figures.classes.get("matrix", 0),
            s.figures.global_read,
            s.figures.global_written,
            s.figures.lds_read + s.figures.lds_written,
            s.figures.polls,
        )
        for s in found.stages
    ]
    rows.sort(key=lambda row: -int(str(row[2])))
    header = (
        "  stage at",
        "size",
        "executed",
        "matrix",
        "read",
        "written",
        "LDS",
        "polls",
    )
    output.table(header, rows[:_STAGES])
    if len(rows) > _STAGES:
        output.text(f"  and {len(rows) - _STAGES} smaller stages (--json has them)")
