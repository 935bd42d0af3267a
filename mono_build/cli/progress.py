"""Progress of a build on standard error: a live bar on a terminal, plain lines in a log."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from mono_build.build import Progress
from mono_build.cli.output import Output, amount, duration, named, styled
from mono_build.compile.coordinator import Event
from mono_build.compile.job import REUSED, Outcome
from mono_runtime.launch_key import LaunchKey

# Running launches that fit under the bar.
_SHOWN = 8


class LogProgress(Progress):
    """A line for each launch that ends, with how far the build is and how long it still takes."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._total = self._done = self._reused = 0
        self._running: dict[LaunchKey, float] = {}
        self._start = time.monotonic()

    def begin(self, total: int, reused: int) -> None:
        self._total, self._done, self._reused = total, reused, reused
        self._start = time.monotonic()
        if reused:
            self._output.note(f"{amount(reused, 'launch')} of {total} current in the store")

    def event(self, event: Event) -> None:
        if event.kind == "started" and event.key:
            self._running[event.key] = time.monotonic()
        elif event.kind == "busy" and event.key:
            self._running.pop(event.key, None)
            self.note(f"{named(event.key)}: {event.text} is building it, doing others first")
        elif event.kind == "waiting" and event.key:
            self.note(
                f"{named(event.key)}: waiting for another builder for {duration(event.seconds)}"
            )
        elif event.kind == "retry" and event.key:
            self._running.pop(event.key, None)
            self.note(f"{named(event.key)}: {event.text}; trying again")
        elif event.outcome:
            self._running.pop(event.outcome.key, None)
            self._done += 1
            self.finished(event.outcome)
            if event.outcome.note:
                self.note(
                    f"{styled('warning:', 'yellow')} {named(event.outcome.key)}: {event.outcome.note}"
                )

    def finished(self, outcome: Outcome) -> None:
        """One launch ended."""
        eta = self._eta()
        left = f", {duration(eta)} left" if eta is not None and self._done < self._total else ""
        self._output.note(f"[{self._done}/{self._total}{left}] {_result(outcome)}")

    def note(self, text: str) -> None:
        self._output.note(text)

    def end(self) -> None:
        self._running.clear()

    def _eta(self) -> float | None:
        built = self._done - self._reused
        if built <= 0:
            return None
        return (time.monotonic() - self._start) / built * (self._total - self._done)


class LiveProgress(LogProgress):
    """A bar, the running launches and the time left, redrawn in place; results scroll above it."""

    def __init__(self, output: Output) -> None:
        super().__init__(output)
        self._live: Any = None

    def begin(self, total: int, reused: int) -> None:
        from rich.console import Console
        from rich.live import Live

        super().begin(total, reused)
        if reused == total:
            return
        console = Console(stderr=True, highlight=False)
        self._live = Live(console=console, refresh_per_second=4, get_renderable=self._picture)
        self._live.start()

    def finished(self, outcome: Outcome) -> None:
        self.note(_result(outcome))

    def note(self, text: str) -> None:
        if self._live is None:
            self._output.note(text)
        else:
            from rich.text import Text

            self._live.console.print(Text.from_ansi(text))

    def end(self) -> None:
        super().end()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _picture(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        now, eta = time.monotonic(), self._eta()
        line = Table.grid(padding=(0, 1))
        left = "" if eta is None else f"{duration(eta)} left"
        bar = ProgressBar(total=max(self._total, 1), completed=self._done, width=40)
        line.add_row(bar, f"{self._done}/{self._total}", left)
        running = list(self._running.items())
        rows = [
            Text(f"  {named(key)}  {duration(now - since)}", "dim")
            for key, since in running[:_SHOWN]
        ]
        if len(running) > _SHOWN:
            rows.append(Text(f"  and {len(running) - _SHOWN} more", "dim"))
        return Group(line, *rows)


def _result(outcome: Outcome) -> str:
    if outcome.failure:
        return f"{styled('FAILED', 'red')}   {named(outcome.key)}  ({outcome.failure.kind})"
    word = "equal IR" if outcome.status == REUSED else "compiled"
    return f"{word} {named(outcome.key)}  {duration(outcome.cpu_seconds)} CPU"


def make_progress(output: Output, *, plain: bool = False) -> Progress:
    """The progress that fits standard error: live on a capable terminal, else lines."""
    dumb = os.environ.get("TERM", "dumb") == "dumb"
    if plain or dumb or not sys.stderr.isatty():
        return LogProgress(output)
    return LiveProgress(output)
