"""Running the command line as a user does: a process of its own, with the stand-in family installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "tests" / "plugin"


@dataclass(frozen=True)
class Result:
    """What a command left: exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


def environment(home: Path, **more: str) -> dict[str, str]:
    """A clean environment with its own home, in which the stand-in family is installed."""
    kept = {n: os.environ[n] for n in ("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV") if n in os.environ}
    path = os.pathsep.join([str(ROOT), str(PLUGIN)])
    return {**kept, "HOME": str(home), "PYTHONPATH": path, "TMPDIR": str(home), **more}


def command(*arguments: str) -> list[str]:
    """The command line of ``mono-build ARGUMENTS``."""
    return [sys.executable, "-m", "mono_build", *arguments]


def run(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    *,
    cwd: Path | None = None,
    timeout: float = 120,
) -> Result:
    """Run ``mono-build ARGUMENTS`` to its end."""
    done = subprocess.run(
        command(*arguments),
        env=dict(environ),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def manifest(
    path: Path,
    *variants: Mapping[str, object],
    rows: Sequence[int] = (1, 2),
    launch: str = "work",
    arch: str = "gfx950",
) -> str:
    """Write a manifest of stand-in launches and return its path."""
    lines = ["schema: 1", "builds:", "  - family: standin", f"    arch: {arch}", "    tp: 1"]
    lines.append(f"    rows: [{', '.join(map(str, rows))}]")
    if variants:
        lines.append("    variants:")
        for variant in variants:
            fields = ", ".join(f"{n}: {json.dumps(v)}" for n, v in variant.items())
            lines.append(
                f"      - {{launch: {launch}, {fields}}}" if fields else f"      - launch: {launch}"
            )
    path.write_text("\n".join(lines) + "\n")
    return str(path)
