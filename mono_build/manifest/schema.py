"""Schema 1 of manifests: from YAML nodes to entries and pins, with every fault noted.

A document has ``schema`` (1), ``toolchain`` (pins of flydsl, lld, kernels, python) and ``builds``, a list
of mappings with these keys; where a list is possible, one value may stand for it:

- ``family``; ``arch`` and ``tp``, each a list (without ``arch`` the command line names it, without ``tp``
  every legal size is built);
- ``deployment``: the family's settings, from which widths and variants follow;
- ``rows``: explicit widths in place of the deployment's;
- ``variants``: a list of build fields with their values, in place of the layers'; what follows from
  others (a key table's width, a draft's top-k) need not be said;
- ``include``, ``exclude``: lists of ``launch``, ``arch``, ``tp``, ``rows`` and build fields with the values
  that a launch must have in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import yaml
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from mono_build.families.base import Family
from mono_build.manifest.model import Entry, Selector, Values, Variant
from mono_build.manifest.problem import Mark
from mono_build.manifest.reader import Reader
from mono_build.plan import Pins
from mono_runtime.arch import parse_architecture
from mono_runtime.errors import InvalidValue
from mono_runtime.families.fields import Field, Setting, hint, shown
from mono_runtime.launch_key import Scalar

SCHEMA = 1
# Aliases make a long list cheap to write; every item costs a planning of its own.
MAX_BUILDS = 256
_TOP = ("schema", "builds", "toolchain")
_ENTRY = ("family", "arch", "tp", "rows", "deployment", "variants", "include", "exclude")
_PINS = ("flydsl", "lld", "kernels", "python")
_SCHEMA = Field("schema", int, "Version of the format.", choices=(SCHEMA,))
_FAMILY = Field("family", str, "A family's name.")
_ARCH = Field("arch", str, "An architecture's name.")
_TP = Field("tp", int, "Tensor-parallel size.", minimum=1)

Nodes = dict[str, tuple[yaml.Node, yaml.Node]]


def read_document(
    reader: Reader, root: yaml.Node, families: Mapping[str, Family]
) -> tuple[list[Entry], list[tuple[Mark, Pins]]]:
    """The entries of a document, and its pins each with where it stands."""
    top = reader.mapping(root, "a manifest", _TOP)
    if "schema" in top:
        _read_schema(reader, top["schema"][1])
    elif isinstance(root, yaml.MappingNode):
        reader.fault(root, f"schema is missing (nearest legal: schema: {SCHEMA})")
    pins = _pins(reader, top["toolchain"][1]) if "toolchain" in top else []
    if "builds" not in top:
        if isinstance(root, yaml.MappingNode):
            reader.fault(root, "builds is missing: a manifest lists what to build")
        return [], pins
    entries = []
    items = reader.items(top["builds"][1], "builds")
    if len(items) > MAX_BUILDS:
        reader.fault(top["builds"][1], f"{len(items)} builds, more than {MAX_BUILDS}")
        return [], pins
    for node in items:
        entry = _entry(reader, node, families)
        if entry is not None:
            entries.append(entry)
    return entries, pins


def _read_schema(reader: Reader, node: yaml.Node) -> None:
    value = reader.scalar(node)
    if isinstance(value, int) and not isinstance(value, bool) and value > SCHEMA:
        reader.fault(
            node, f"schema {value} is newer than this mono-build, which reads {SCHEMA} (upgrade it)"
        )
    else:
        reader.value(node, _SCHEMA)


def _pins(reader: Reader, node: yaml.Node) -> list[tuple[Mark, Pins]]:
    pins = []
    for name, (_, value) in reader.mapping(node, "toolchain", _PINS).items():
        text = reader.value(value, Field(name, str, "A version or a specifier."))
        if not isinstance(text, str):
            continue
        bare = text.strip().removeprefix("vllm") if name == "kernels" else text.strip()
        try:
            SpecifierSet(f"=={bare}" if bare[:1].isdigit() else bare)
        except InvalidSpecifier:
            reader.fault(
                value, f"{name} {shown(text)} is no version (write '0.5.0' or '>=0.4.2,<0.6')"
            )
            continue
        pins.append((reader.mark(value), replace(Pins(), **{name: text})))
    return pins


def _entry(reader: Reader, node: yaml.Node, families: Mapping[str, Family]) -> Entry | None:
    """One item of ``builds``; None when its family is not known."""
    nodes = reader.mapping(node, "a build", _ENTRY)
    family = _family(reader, node, nodes, families)
    archs = _archs(reader, nodes, family)
    tps = _tps(reader, nodes, family, archs)
    if family is None:
        return None
    rows = reader.values(nodes["rows"][1], _rows_field(family)) if "rows" in nodes else []
    return Entry(
        family=family.name,
        archs=archs,
        tps=tps,
        mark=reader.mark(node),
        settings=_settings(reader, nodes, family),
        settings_mark=reader.mark(nodes["deployment"][1] if "deployment" in nodes else node),
        rows=tuple(v for _, v in rows if isinstance(v, int)),
        row_marks=tuple(mark for mark, _ in rows),
        variants=_variants(reader, nodes, family),
        include=_selectors(reader, nodes, "include", family),
        exclude=_selectors(reader, nodes, "exclude", family),
    )


def _family(
    reader: Reader, node: yaml.Node, nodes: Nodes, families: Mapping[str, Family]
) -> Family | None:
    if "family" not in nodes:
        if isinstance(node, yaml.MappingNode):
            reader.fault(node, f"family is missing (known: {', '.join(families)})")
        return None
    value = nodes["family"][1]
    name = reader.value(value, _FAMILY)
    if not isinstance(name, str):
        return None
    if name not in families:
        reader.fault(value, f"unknown family {shown(name)} ({hint(name, families)})")
    return families.get(name)


def _archs(reader: Reader, nodes: Nodes, family: Family | None) -> tuple[str, ...]:
    found: dict[str, None] = {}
    if "arch" not in nodes:
        return ()
    for item in reader.one_or_more(nodes["arch"][1], "arch"):
        text = reader.value(item, _ARCH)
        if not isinstance(text, str):
            continue
        try:
            name = parse_architecture(text).name
        except InvalidValue as error:
            reader.fault(item, f"{error.what} ({error.fix})")
            continue
        refusal = family.refusal(name) if family else None
        if refusal:
            reader.fault(item, refusal)
        elif name in found:
            reader.fault(item, f"arch {name} is listed twice")
        else:
            found[name] = None
    return tuple(found)


def _tps(
    reader: Reader, nodes: Nodes, family: Family | None, archs: tuple[str, ...]
) -> tuple[int, ...]:
    legal: list[int] = []
    if "tp" not in nodes:
        return ()
    for mark, tp in reader.values(nodes["tp"][1], _TP):
        if not isinstance(tp, int):
            continue
        refusals = [family.refusal(a, tp) for a in archs or family.targets] if family else []
        wrong = [r for r in refusals if r]
        # Without an architecture it is enough that one of them admits the size.
        if wrong and (archs or len(wrong) == len(refusals)):
            for refusal in wrong:
                reader.problems.add(mark, refusal)
        else:
            legal.append(tp)
    return tuple(legal)


def _rows_field(family: Family) -> Field:
    specs = (f for s in family.launches for f in s.fields if f.name == family.rows_field)
    found = next(specs, Field("rows", int, "Rows of the step.", minimum=1))
    return replace(found, name="rows")


def _settings(reader: Reader, nodes: Nodes, family: Family) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    if "deployment" not in nodes:
        return found
    fields = {f.name: f for f in family.deployment_fields}
    section = reader.mapping(
        nodes["deployment"][1], f"the deployment of {family.name}", list(fields), "setting"
    )
    for name, (_, node) in section.items():
        field = fields[name]
        if field.many:
            values = reader.values(node, field)
            found[name] = tuple(v for _, v in values if isinstance(v, int))
            continue
        value = reader.value(node, field)
        if value is not None:
            found[name] = value
    return found


def _variants(reader: Reader, nodes: Nodes, family: Family) -> tuple[Variant, ...]:
    found: list[Variant] = []
    if "variants" not in nodes:
        return ()
    given = {family.rows_field, "tp"}
    fields = {f.name: f for s in family.launches for f in s.fields if f.name not in given}
    for node in reader.items(nodes["variants"][1], "variants"):
        before = len(reader.problems.found)
        section = reader.mapping(node, "a variant", ["launch", *fields], "build field")
        launches = _launches(reader, section, family)
        if not launches and "launch" not in section:
            launches = [s.name for s in family.launches]
            if len(launches) > 1 and isinstance(node, yaml.MappingNode):
                reader.fault(node, f"launch is missing (known: {', '.join(launches)})")
                continue
        for name, (key, _) in section.items():
            without = [n for n in launches if name != "launch" and not _has(family, n, name)]
            if without:
                reader.fault(key, f"{' and '.join(without)} of {family.name} has no field {name}")
                launches = [n for n in launches if n not in without]
        values = _values(reader, section, fields)
        if launches and not reader.problems.since(before):
            found.append(Variant(tuple(launches), values, reader.mark(node)))
    return tuple(found)


def _has(family: Family, launch: str, name: str) -> bool:
    spec = family.spec(launch)
    return spec is not None and any(f.name == name for f in spec.fields)


def _launches(reader: Reader, section: Nodes, family: Family) -> list[str]:
    if "launch" not in section:
        return []
    names = tuple(s.name for s in family.launches)
    field = Field("launch", str, "A launch's name.", choices=names)
    return [str(v) for _, v in reader.values(section["launch"][1], field)]


def _values(reader: Reader, section: Nodes, fields: Mapping[str, Field]) -> Values:
    found: list[tuple[str, tuple[Scalar, ...]]] = []
    for name, (_, node) in section.items():
        if name not in fields:
            continue
        values = tuple(v for _, v in reader.values(node, fields[name]))
        if values:
            found.append((name, values))
    return tuple(sorted(found))


def _selectors(reader: Reader, nodes: Nodes, which: str, family: Family) -> tuple[Selector, ...]:
    found: list[Selector] = []
    if which not in nodes:
        return ()
    launches = tuple(s.name for s in family.launches)
    fields = {
        "launch": Field("launch", str, "A launch's name.", choices=launches),
        "arch": Field("arch", str, "An architecture's name.", choices=tuple(family.targets)),
        "tp": _TP,
        "rows": _rows_field(family),
        **{f.name: f for s in family.launches for f in s.fields if f.name != "tp"},
    }
    for node in reader.items(nodes[which][1], which):
        before = len(reader.problems.found)
        section = reader.mapping(node, f"an item of {which}", list(fields), "field")
        values = _values(reader, section, fields)
        if reader.problems.since(before):
            # A selector that lost a field would match more than it says.
            continue
        if values:
            found.append(Selector(values, reader.mark(node)))
        else:
            reader.fault(node, f"an item of {which} names no field")
    return tuple(found)
