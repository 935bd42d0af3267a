"""Installed kernels that are not those that a store was built from, file by file."""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from reading_kit import Forgery, opened
from store_kit import as_other_user, inputs, key

from mono_runtime.errors import KernelSourcesDiffer
from mono_runtime.inputs import Inputs
from mono_runtime.sources import (
    SourceCheck,
    SourceDifference,
    SourceHashes,
    compare_sources,
    require_equal_sources,
)

FILES = {
    "kernels_x/__init__.py": b"raise ImportError('nobody imports this')\n",
    "kernels_x/models/a.py": b"A = 1\n",
    "kernels_x/models/b.py": b"B = 2\n",
    "kernels_x/models/table.json": b"[1, 2]\n",
}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def built_from(files: dict[str, bytes], package: str = "kernels_x", **others: str) -> Inputs:
    recorded = {path: sha256(data) for path, data in files.items()} | others
    return replace(
        inputs(),
        sources=tuple(sorted(recorded.items())),
        kernels=(("package", package), ("version", "0.33.0")),
    )


def write(root: Path, files: dict[str, bytes]) -> Path:
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return root


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return write(tmp_path, FILES)


def test_equal_sources_differ_nowhere(installed: Path) -> None:
    for roots in (None, {"kernels_x": installed}):
        comparison = compare_sources(built_from(FILES), roots)
        assert comparison.differences == ()
        assert (comparison.compared, comparison.package, comparison.version) == (
            4,
            "kernels_x",
            "0.33.0",
        )
        assert comparison.installed == (installed,)
    assert require_equal_sources(built_from(FILES)) == compare_sources(built_from(FILES))
    assert not [name for name in sys.modules if name.startswith("kernels_x")]


def test_each_file_that_differs_is_told_with_both_digests(installed: Path) -> None:
    (installed / "kernels_x/models/a.py").write_bytes(b"A = 2\n")
    (installed / "kernels_x/models/b.py").unlink()
    (installed / "kernels_x/models/new.py").write_bytes(b"")
    assert compare_sources(built_from(FILES)).differences == (
        SourceDifference(
            "kernels_x/models/a.py",
            expected=sha256(b"A = 1\n"),
            found=sha256(b"A = 2\n"),
            why="its content is another",
        ),
        SourceDifference("kernels_x/models/b.py", sha256(b"B = 2\n"), None, why="it is not there"),
    )


def test_the_error_names_files_place_store_and_what_to_do(installed: Path) -> None:
    (installed / "kernels_x/models/a.py").write_bytes(b"A = 2\n")
    (installed / "kernels_x/models/b.py").unlink()
    with pytest.raises(KernelSourcesDiffer) as caught:
        require_equal_sources(built_from(FILES), where="/opt/store")
    assert str(caught.value) == (
        "the installed kernels_x is not what the store was built from: 2 of 4 files differ\n"
        "  kernels_x/models/a.py: its content is another\n"
        "  kernels_x/models/b.py: it is not there\n"
        f"  where: {installed / 'kernels_x'}; store /opt/store\n"
        "  do:    build a store from the kernels_x that is installed, or install kernels_x 0.33.0"
    )


def test_of_many_files_ten_are_named_and_the_rest_counted(tmp_path: Path) -> None:
    write(tmp_path, {"kernels_x/__init__.py": b""})
    files = {f"kernels_x/m{n:02}.py": b"%d" % n for n in range(13)}
    with pytest.raises(KernelSourcesDiffer) as caught:
        require_equal_sources(built_from(files), {"kernels_x": tmp_path})
    lines = caught.value.what.splitlines()
    assert lines[0].endswith("13 of 13 files differ")
    assert lines[1:11] == [f"  kernels_x/m{n:02}.py: it is not there" for n in range(10)]
    assert lines[11:] == ["  and 3 more"]


def test_helpers_and_other_packages_make_no_store_stale(installed: Path) -> None:
    others = {"aiter/ops/x.py": "0" * 64, "kernels_xy/x.py": "0" * 64, "kernels_x.txt": "0" * 64}
    comparison = compare_sources(built_from(FILES, **others))
    assert (comparison.compared, comparison.differences) == (4, ())


def test_a_package_that_is_not_installed_cannot_differ() -> None:
    for package in ("kernels_y", "not a name", ""):
        comparison = require_equal_sources(built_from(FILES, package))
        assert (comparison.installed, comparison.compared) == ((), 0)
    assert compare_sources(built_from(FILES), {}).installed == ()


def test_a_module_that_a_package_hides_differs(installed: Path) -> None:
    write(installed, {"kernels_x/models/a/__init__.py": b""})
    (difference,) = compare_sources(built_from(FILES)).differences
    assert (difference.path, difference.why) == (
        "kernels_x/models/a.py",
        "a package of the same name hides it",
    )


def test_a_file_that_may_not_be_read_is_not_called_absent(public: Path) -> None:
    write(public, FILES)
    (public / "kernels_x/models/a.py").chmod(0)

    def compare() -> list[list[str | None]]:
        found = compare_sources(built_from(FILES), {"kernels_x": public}).differences
        return [[d.path, d.found, d.why] for d in found]

    assert as_other_user(compare) == [["kernels_x/models/a.py", None, "this user may not read it"]]


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(installed: Path) -> None:
    (installed / "kernels_x/models/a.py").unlink()
    os.mkfifo(installed / "kernels_x/models/a.py")
    (difference,) = compare_sources(built_from(FILES)).differences
    assert difference.why == "it is not there"


# Where the package is.


def test_a_namespace_package_may_lie_in_several_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {path: data for path, data in FILES.items() if "__init__" not in path}
    parts = {"one": ["kernels_x/models/a.py"], "two": [p for p in files if not p.endswith("a.py")]}
    for name, paths in parts.items():
        write(tmp_path / name, {path: files[path] for path in paths})
        monkeypatch.syspath_prepend(str(tmp_path / name))
    comparison = compare_sources(built_from(files))
    assert comparison.installed == (tmp_path / "two", tmp_path / "one")
    assert (comparison.compared, comparison.differences) == (3, ())


class EditableFinder:
    """As setuptools installs it: an import hook that knows where the sources are (PEP 660)."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "kernels_x":
            return None
        return importlib.util.spec_from_file_location(name, self.directory / "__init__.py")


def test_an_editable_installation_is_found_by_its_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "src", FILES)
    finder: Any = EditableFinder(tmp_path / "src" / "kernels_x")
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    comparison = compare_sources(built_from(FILES))
    assert comparison.installed == (tmp_path / "src",)
    assert (comparison.compared, comparison.differences) == (4, ())


def test_the_module_that_is_already_imported_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {**FILES, "kernels_x/__init__.py": b""}
    write(tmp_path / "used", files)
    monkeypatch.syspath_prepend(str(tmp_path / "used"))
    importlib.import_module("kernels_x")
    write(tmp_path / "other", {"kernels_x/__init__.py": b"other"})
    monkeypatch.syspath_prepend(str(tmp_path / "other"))
    try:
        assert compare_sources(built_from(files)).installed == (tmp_path / "used",)
    finally:
        del sys.modules["kernels_x"]


def test_a_module_that_is_no_package_is_compared_with_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"kernels_x.py": b"X = 1\n", "table.json": b"[]"})
    monkeypatch.syspath_prepend(str(tmp_path))
    recorded = built_from({"kernels_x.py": b"X = 1\n", "kernels_x.py/table.json": b"{}"})
    comparison = compare_sources(recorded)
    assert comparison.compared == 2
    assert [d.path for d in comparison.differences] == ["kernels_x.py/table.json"]


# How often files are read.


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    read: list[str] = []
    real = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        read.append(path.name)
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    return read


def test_an_unchanged_file_is_read_once_and_a_changed_one_again(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, hashes = counted(monkeypatch), SourceHashes()
    for _ in range(3):
        assert compare_sources(built_from(FILES), hashes=hashes).differences == ()
    assert sorted(read) == ["__init__.py", "a.py", "b.py", "table.json"]
    # Equal in length, so that the status alone tells.
    (installed / "kernels_x/models/a.py").write_bytes(b"A = 2\n")
    (difference,) = compare_sources(built_from(FILES), hashes=hashes).differences
    assert difference.found == sha256(b"A = 2\n")
    assert sorted(read[4:]) == ["a.py"]


def test_a_check_reads_each_list_of_inputs_once(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"K = 1\n"
    write(tmp_path / "root", {"vllm/models/mono.py": content})
    Forgery(store).write(
        "inputs", lambda document: {**document, "sources": {"vllm/models/mono.py": sha256(content)}}
    )
    layers = opened(store)
    read, check = counted(monkeypatch), SourceCheck({"vllm": tmp_path / "root"})
    first, second = (layers.find(key(rows)) for rows in (1, 2))
    for _ in range(3):
        digest = layers.artefact(first).inputs
        assert check.require(first.reader, digest).compared == 1
        # The other launches were built from another file, and say so each time.
        with pytest.raises(KernelSourcesDiffer, match="1 of 1 files differ") as caught:
            check.require(second.reader, layers.artefact(second).inputs)
        assert caught.value.where == f"{tmp_path / 'root' / 'vllm'}; store {store}"
    assert read == ["mono.py"]


def test_launches_of_this_project_s_own_are_compared_with_no_installed_file() -> None:
    # The installed mono_build has other bytes at this path, and a server need not have it at all.
    own = built_from({"mono_build/kernels/__init__.py": b"another release"}, "mono-build")
    comparison = compare_sources(own)
    assert (comparison.package, comparison.compared) == ("mono-build", 0)
    assert comparison.differences == ()
