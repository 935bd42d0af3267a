"""The table of modelled instructions in docs/emulator.md, made from the emitters, a census and the tests.

``python tests/docs/instruction_table.py`` prints it, to be pasted when the test says that it is stale.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADER = "| class | modelled | source | used by the families' launches |\n|---|---|---|---|\n"
_ISA = "CDNA3 and CDNA4 ISA documents"
_FORMATS = "OCP MX and FP8 specifications"
# Emitters by module of mono_build.emulator.translate, in the order of the docs, and what they follow.
CLASSES = {
    "scalar": ("scalar arithmetic, branches, waits", _ISA),
    "memory": ("scalar loads, global and scratch memory", _ISA),
    "buffer": ("buffers through descriptors", _ISA),
    "lds": ("LDS and what goes through its hardware", _ISA),
    "vector": ("vector arithmetic and comparisons", f"{_ISA}; IEEE 754"),
    "lanes": ("moves between lanes", _ISA),
    "packed": ("packed arithmetic", _ISA),
    "halves": ("f16 arithmetic", f"{_ISA}; IEEE 754"),
    "convert": ("conversions", f"{_ISA}; {_FORMATS}"),
    "matrix": ("matrix instructions", f"{_ISA}; {_FORMATS}"),
}


def census() -> set[str]:
    """Every instruction of the launches that were looked at, on either architecture."""
    text = Path(__file__).with_name("used_instructions.json").read_text()
    return {name for names in json.loads(text).values() for name in names}


def tested() -> set[str]:
    """Words of the tests of single instructions: an instruction that is none of them has no test of its own."""
    words: set[str] = set()
    for file in (ROOT / "tests" / "emulator").glob("*.py"):
        words |= set(re.findall(r"\b[a-z]+_[a-z0-9_]+", file.read_text()))
    return words | {re.sub(r"_e(32|64)$", "", w) for w in words}


def table() -> str:
    """The table; instructions without a test of their own have a star."""
    from importlib import import_module

    used, known = census(), tested()
    lines = []
    for module, (words, source) in CLASSES.items():
        emitters = import_module(f"mono_build.emulator.translate.{module}").EMITTERS
        mine = sorted(used & emitters.keys())
        names = " ".join(f"`{n}`{'' if n in known else '*'}" for n in mine)
        lines.append(f"| {words} | {len(emitters)} | {source} | {names} |")
    return HEADER + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.stdout.write(table())
