"""Reading YAML nodes: mappings with known keys, lists, and single values, each fault at its place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import yaml

from mono_build.manifest.document import MAX_DEPTH
from mono_build.manifest.problem import Mark, Problems
from mono_runtime.families.fields import WORDS, Field, coerced, hint, problem_with, shown
from mono_runtime.launch_key import Scalar

# Aliases let a short text stand for a huge one: what is read is counted, not what is written.
MAX_NODES = 20_000
_MERGE = "tag:yaml.org,2002:merge"
_PLAIN = {f"tag:yaml.org,2002:{n}" for n in ("str", "int", "float", "bool", "null")}
# YAML 1.1 takes a number with an exponent but no point for text.
_EXPONENT = re.compile(r"[-+]?[0-9]+e[-+]?[0-9]+\Z", re.IGNORECASE)


class TooMuch(Exception):
    """Aliases of a document expand to more nodes than a manifest can need."""


@dataclass(slots=True)
class Reader:
    """Reads the nodes of one document of ``source`` and collects what is wrong with them."""

    source: str
    problems: Problems
    visited: int = 0
    _constructor: yaml.constructor.SafeConstructor = field(
        default_factory=yaml.constructor.SafeConstructor
    )

    def mark(self, node: yaml.Node) -> Mark:
        """Where ``node`` begins."""
        return Mark(self.source, node.start_mark.line + 1, node.start_mark.column + 1)

    def fault(self, node: yaml.Node, text: str) -> None:
        """Note that ``text`` is wrong at ``node``."""
        self.problems.add(self.mark(node), text)

    def mapping(
        self, node: yaml.Node, what: str, known: Sequence[str], unknown: str = "key"
    ) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """The (key, value) nodes of a mapping by key; unknown and repeated keys are faults."""
        found: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        if not isinstance(node, yaml.MappingNode):
            self.fault(node, f"{what} must be a mapping, not {self._kind(node)}")
            return found
        merged: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            self._count()
            if key.tag == _MERGE:
                merged |= self._merged(value, what, known, unknown)
                continue
            name = self.scalar(key)
            if not isinstance(name, str):
                self.fault(key, f"a key of {what} must be text, not {self._kind(key)}")
            elif name in found:
                first = found[name][0].start_mark.line + 1
                self.fault(key, f"{name!r} is given twice (first on line {first})")
            elif name not in known:
                self.fault(key, f"unknown {unknown} {name!r} in {what} ({hint(name, known)})")
            else:
                found[name] = (key, value)
        return {**merged, **found}

    def _merged(
        self, node: yaml.Node, what: str, known: Sequence[str], unknown: str, depth: int = 0
    ) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        # Merges can name themselves through an alias, which would never end.
        if depth > MAX_DEPTH or self.visited > MAX_NODES:
            raise TooMuch
        found: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for source in reversed(sources):
            inner = source.value if isinstance(source, yaml.MappingNode) else []
            for key, value in inner:
                self._count()
                if key.tag == _MERGE:
                    found |= self._merged(value, what, known, unknown, depth + 1)
            own = [pair for pair in inner if pair[0].tag != _MERGE]
            if isinstance(source, yaml.MappingNode):
                plain = yaml.MappingNode(source.tag, own, source.start_mark, source.end_mark)
                found |= self.mapping(plain, what, known, unknown)
            else:
                self.fault(source, "<< must name a mapping")
        return found

    def items(self, node: yaml.Node, what: str) -> list[yaml.Node]:
        """The elements of a list; an empty list is a fault."""
        if not isinstance(node, yaml.SequenceNode):
            self.fault(node, f"{what} must be a list, not {self._kind(node)}")
            return []
        if not node.value:
            self.fault(node, f"{what} is an empty list")
        for _ in node.value:
            self._count()
        return list(node.value)

    def one_or_more(self, node: yaml.Node, what: str) -> list[yaml.Node]:
        """The elements of a list, or the single value that stands for it."""
        return [node] if isinstance(node, yaml.ScalarNode) else self.items(node, what)

    def scalar(self, node: yaml.Node) -> Scalar | None:
        """The value of a scalar node; None for nothing and for what is no plain scalar."""
        self._count()
        if not isinstance(node, yaml.ScalarNode) or node.tag not in _PLAIN:
            return None
        try:
            value = self._constructor.construct_object(node)
        except (yaml.YAMLError, ValueError, LookupError, OverflowError):
            return None
        return value if isinstance(value, (bool, int, float, str)) else None

    def value(self, node: yaml.Node, field: Field) -> Scalar | None:
        """A legal value of ``field``, or None after noting the fault."""
        value = self.scalar(node)
        if value is None:
            kind = self._kind(node)
            self.fault(node, f"{field.name} must be {WORDS[field.type]}, not {kind}")
            return None
        if field.type is float and isinstance(value, str) and _EXPONENT.match(value):
            value = float(value)
        problem = problem_with(field, value)
        if problem is None:
            return coerced(field, value)
        quote = isinstance(value, (int, float)) and field.type is str
        self.fault(node, problem + (" (quote it)" if quote else ""))
        return None

    def values(self, node: yaml.Node, field: Field) -> list[tuple[Mark, Scalar]]:
        """The legal values of ``field`` in a list or a single value; a repeat is a fault."""
        found: dict[Scalar, Mark] = {}
        for item in self.one_or_more(node, field.name):
            value = self.value(item, field)
            if value is None:
                continue
            if value in found:
                self.fault(item, f"{field.name} {shown(value)} is listed twice")
            found.setdefault(value, self.mark(item))
        return [(mark, value) for value, mark in found.items()]

    def _count(self) -> None:
        self.visited += 1
        if self.visited > MAX_NODES:
            raise TooMuch

    def _kind(self, node: yaml.Node) -> str:
        if isinstance(node, yaml.MappingNode):
            return "a mapping"
        if isinstance(node, yaml.SequenceNode):
            return "a list"
        if node.tag == "tag:yaml.org,2002:null":
            return "nothing"
        return shown(str(node.value))
