"""Problems of manifests: what is wrong, and where in which file."""

from __future__ import annotations

from dataclasses import dataclass, field

from mono_build.errors import ManifestError


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in a manifest; lines and columns count from 1."""

    source: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}"


@dataclass(slots=True)
class Problems:
    """What was found wrong so far."""

    found: dict[tuple[Mark, str], None] = field(default_factory=dict)

    def add(self, mark: Mark, text: str) -> None:
        """Note that ``text`` is wrong at ``mark``, once."""
        self.found[mark, text] = None

    def since(self, count: int) -> bool:
        """Whether something was found after the first ``count`` problems."""
        return len(self.found) > count

    def raise_any(self) -> None:
        """Raise `ManifestError` with every problem in file order, if there is one."""
        if self.found:
            ordered = sorted(self.found, key=lambda p: p[0])
            raise ManifestError([f"{mark}: {text}" for mark, text in ordered])
