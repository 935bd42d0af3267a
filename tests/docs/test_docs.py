"""The documentation says what is so: links, commands, options, fields, examples and tables."""

from __future__ import annotations

import re
from dataclasses import fields as dataclass_fields
from pathlib import Path

import click
import pytest
from docs_pages import ROOT, Page, invocations, page, pages, table_after

from mono_build.build import BuildReport
from mono_build.cli.main import COMMANDS, cli
from mono_build.store.diff import StoreDiff
from mono_build.store.gc import GcReport
from mono_build.store.transport import ExportReport, ImportReport
from mono_build.store.verify import VerifyReport
from mono_runtime import oci

PAGES = pages()
PLACEHOLDERS = {"COMMAND", "[OPTIONS]", "..."}
BENCHES = ("build_figures.py", "runtime_figures.py", "figures/session.py")
GLOBAL = {"--version", "--help", "-h"}
NAMES = [p.name for p in PAGES]


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def options(name: str) -> set[str]:
    return {o for p in command(name).params if isinstance(p, click.Option) for o in p.opts}


def test_the_pages_that_the_readme_promises_are_there() -> None:
    expected = {
        "architecture",
        "commands",
        "families",
        "figures",
        "manifests",
        "runtime",
        "troubleshooting",
    }
    assert {p.stem for p in (ROOT / "docs").glob("*.md")} >= expected


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_relative_links_and_anchors_resolve(page: Page) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.prose):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.path.parent / path).resolve() if path else page.path
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in Page(file).anchors(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_no_page_names_a_host_or_a_directory_of_somebody(page: Page) -> None:
    # Documents are read offline, and packages come from whatever index a site uses.
    assert re.findall(r"https?://[^\s)>`]+|\b(?:root|Users)/[a-z]\w*/", page.text) == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_command_line_shown_is_understood(page: Page) -> None:
    for arguments in invocations(page):
        if PLACEHOLDERS & set(arguments) or arguments[0] in GLOBAL:
            continue
        # Options without a command mean build.
        named = not arguments[0].startswith("-")
        name, rest = (arguments[0], arguments[1:]) if named else ("build", arguments)
        shown = f"{page.name}: mono-build {' '.join(arguments)}"
        assert name in COMMANDS, shown
        try:
            command(name).make_context(name, list(rest))
        except click.UsageError as error:
            # A command that is only named stands without its arguments.
            if rest or not isinstance(error, click.MissingParameter):
                pytest.fail(f"{shown}: {error.format_message()}")


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_option_named_in_prose_exists_somewhere(page: Page) -> None:
    known = {o for name in COMMANDS for o in options(name)} | GLOBAL
    named = set(re.findall(r"`(--[a-z][a-z-]*)", page.prose))
    foreign = {"--speculative-config", "--max-num-seqs", "--max-model-len", "--network"}
    foreign |= {"--ignore-requires-python", "--only-binary", "--enforce-eager"}
    text = "".join((ROOT / "ci/bench" / bench).read_text() for bench in BENCHES)
    bench = re.findall(r'add_argument\(\s*"(--[a-z]+)"', text)
    assert named <= known | foreign | set(bench), page.name


@pytest.mark.parametrize("name", COMMANDS)
def test_the_section_of_a_command_names_its_options_and_no_others(name: str) -> None:
    docs = page("docs/commands.md")
    section, common = docs.section(name), docs.section("Common to all")
    named = set(
        re.findall(r"`(--?[a-z][a-z-]*)(?= |`)", re.sub(r"```.*?```", "", section, flags=re.S))
    )
    assert named <= options(name) | {"--check"}
    shared = set(re.findall(r"`(--[a-z]+)", common)) if "selection" in section.lower() else set()
    shared |= set(re.findall(r"`(--[a-z]+)", common)) if "as for planning" in section else set()
    assert options(name) <= named | shared, name


JSON_FIELDS = {
    "build": {"store", "check", *BuildReport().to_json()},
    "verify": set(VerifyReport("", None, 0, 0, 0, (), ()).to_json()),
    "gc": set(GcReport((), 0, (), True).to_json()),
    "export": {f.name for f in dataclass_fields(ExportReport)},
    "import": {f.name for f in dataclass_fields(ImportReport)},
    "diff": set(StoreDiff((), (), (), 0).to_json()),
}


@pytest.mark.parametrize("name", JSON_FIELDS)
def test_every_field_of_the_json_answer_is_documented(name: str) -> None:
    section = page("docs/commands.md").section(name)
    described = section[section.index("`--json`:" if "`--json`:" in section else "`--json`") :]
    named = set(re.findall(r"`([a-z_0-9]+)`", described))
    assert JSON_FIELDS[name] <= named


def test_the_media_types_are_those_of_the_reader() -> None:
    text = page("docs/architecture.md").section("Store")
    named = set(re.findall(r"application/vnd\.[a-z0-9.+-]+", text))
    types = {oci.STORE_TYPE, oci.INDEX_TYPE, oci.ARTEFACT_TYPE, oci.INPUTS_TYPE}
    assert named == types | {oci.CODE_OBJECT_TYPE, oci.OCI_MANIFEST, oci.OCI_INDEX}


def test_the_devices_named_are_those_that_residency_is_computed_for() -> None:
    from mono_runtime.targets import PRODUCTS

    text = page("docs/architecture.md").section("Residency")
    for device in PRODUCTS.values():
        pattern = rf"{device.name}(?: and \w+)? \({device.compute_units}|and {device.name} \({device.compute_units}"
        assert re.search(pattern, text), device.name


def test_every_failure_kind_has_an_advice() -> None:
    source = Path(ROOT, "mono_build/compile/job.py").read_text()
    doc = source[source.index("kind: ``compile``") : source.index("what: FlyDSL")]
    kinds = set(re.findall(r"``([a-z]+)``", doc))
    rows = table_after(
        page("docs/troubleshooting.md").section("A launch failed"), "environment variables."
    )
    assert {row["kind"].strip("`") for row in rows} == kinds


def test_the_marker_table_is_that_of_the_project() -> None:
    declared = re.findall(
        r'^    "([a-z]+): ', Path(ROOT, "pyproject.toml").read_text(), re.MULTILINE
    )
    rows = table_after(page("CONTRIBUTING.md").section("Tests"), "Markers:")
    assert [row["marker"].strip("`") for row in rows] == declared
