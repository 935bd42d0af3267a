"""The page about the runtime against the code: errors, variables, policies, counters, calls."""

from __future__ import annotations

import inspect
import re

from docs_pages import ROOT, page

import mono_runtime
from mono_runtime import errors
from mono_runtime.counters import Counters
from mono_runtime.loader import Loader
from mono_runtime.policy import Policy
from mono_runtime.store import Store

PAGE = page("docs/runtime.md")
# Bases that say too little to be raised themselves.
ABSTRACT = {"MonoError", "StoreError"}


def test_every_error_has_a_row_and_every_row_an_error() -> None:
    defined = {
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, errors.MonoError)
    }
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE.section("Errors"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"\w+", row)}
    assert named == defined - ABSTRACT


def test_the_variables_are_those_that_the_runtime_reads() -> None:
    sources = "".join(p.read_text() for p in (ROOT / "mono_runtime").rglob("*.py"))
    read = set(re.findall(r'^\w+ = "(MONO_[A-Z_]+)"', sources, re.MULTILINE))
    rows = re.findall(r"^\| `(MONO_[A-Z_]+)` \|", PAGE.section("Environment"), re.MULTILINE)
    assert sorted(rows) == sorted(read)


def test_every_policy_and_counter_is_described() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.section("Policy"), re.MULTILINE)
    assert rows == [p.value for p in Policy]
    named = set(re.findall(r"`([a-z_]+)`", PAGE.section("Counters")))
    assert set(Counters().snapshot()) <= named


def test_the_calls_and_their_arguments_are_those_of_the_code() -> None:
    table = PAGE.section("In a server")
    calls = re.findall(r"`(mono_runtime|store|loader)\.(\w+)\(([^)`]*)\)`", table)
    assert len(calls) >= 10
    owners = {"mono_runtime": mono_runtime, "store": Store, "loader": Loader}
    for owner, name, arguments in calls:
        known = inspect.signature(getattr(owners[owner], name)).parameters
        named = {a.strip().rstrip("=").lstrip("*") for a in arguments.split(",") if a.strip()}
        assert named - {"build_key"} <= set(known), f"{owner}.{name}"


def test_the_package_exports_what_it_says() -> None:
    for name in mono_runtime.__all__:
        assert getattr(mono_runtime, name) is not None
    assert mono_runtime.open.__name__ == "open_store"
