"""Reading the documentation: its pages, headings, code blocks, tables and the commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Page:
    """One Markdown file."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def prose(self) -> str:
        """The text without its code blocks."""
        return _FENCE.sub("", self.text)

    def blocks(self, language: str) -> list[str]:
        """The code blocks whose info string is exactly ``language``."""
        return [body for info, body in _FENCE.findall(self.text) if info.strip() == language]

    def headings(self) -> list[str]:
        return re.findall(r"^#+ (.*)$", self.prose, re.MULTILINE)

    def anchors(self) -> set[str]:
        """The fragments that GitHub makes of the headings."""
        return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in self.headings()}

    def section(self, heading: str) -> str:
        """The text below a heading up to the next one of its level or above."""
        match = re.search(rf"^(#+) {re.escape(heading)}$", self.text, re.MULTILINE)
        if match is None:
            raise LookupError(f"{self.name} has no heading {heading!r}")
        rest = self.text[match.end() :]
        end = re.search(rf"^#{{1,{len(match[1])}}} ", rest, re.MULTILINE)
        return rest[: end.start()] if end else rest


def pages() -> list[Page]:
    """README and its neighbours, and everything in docs."""
    return [Page(p) for p in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")))]


def page(name: str) -> Page:
    return Page(ROOT / name)


def table_after(text: str, line: str) -> list[dict[str, str]]:
    """The rows of the first table after ``line``, by column name; code marks are kept."""
    rows: list[list[str]] = []
    for row in text[text.index(line) + len(line) :].lstrip("\n").splitlines():
        if not row.startswith("|"):
            if rows:
                break
            continue
        rows.append([cell.strip() for cell in row.strip("|").split("|")])
    return [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]


def invocations(page: Page) -> Iterator[list[str]]:
    """The arguments of every ``mono-build`` or ``ci/build`` command line that the page shows."""
    for _, body in _FENCE.findall(page.text):
        for line in re.sub(r"\\\n", " ", body).splitlines():
            yield from _in(line.strip().removeprefix("$ "))
    for code in re.findall(r"`([^`\n]+)`", page.prose):
        yield from _in(code)


def _in(line: str) -> Iterator[list[str]]:
    for part in re.split(r" && |; ", line.removeprefix("&& ")):
        match = re.match(r"(?:reproduce: +)?(mono-build|\./ci/build)(?: |$)(.*)", part.strip())
        arguments = shlex.split(match[2], comments=True) if match else []
        # The bare name stands for the program.
        if arguments:
            yield arguments
