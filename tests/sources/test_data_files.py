"""Data files and modules that a build's code follows from, wherever they lie, and finding them again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kernel_trees import BASE, PACKAGE, make_kernels, run, sha, write

from mono_build.sources.roots import SourceRoots, current_sources

READS = "from pathlib import Path\nTABLE = (Path(__file__).parent / {!r}).read_text()\n"
RECORD = f"import {PACKAGE}.layer\nresult = dict(hook.sources())"


def kernels(root: Path, plan: str) -> Path:
    return make_kernels(root, **{f"{BASE}/plan.py": plan})


def data(found: dict[str, str]) -> dict[str, str]:
    return {name: sha256 for name, sha256 in found.items() if not name.endswith(".py")}


def test_data_below_a_helper_package_elsewhere_is_recorded(tmp_path: Path) -> None:
    far = write(
        tmp_path / "far",
        {
            "tools/__init__.py": "",
            "tools/deep/__init__.py": "",
            "tools/deep/one.py": READS.format("../tables/t.json"),
            "tools/tables/t.json": "[1]",
            "tools/tables/unread.json": "[2]",
            "beside.json": "[3]",
        },
    )
    found = run(kernels(tmp_path / "k", "import tools.deep.one\n"), RECORD, far)
    assert data(found) == {"tools/tables/t.json": sha("[1]")}


def test_data_beside_a_single_module_is_recorded_and_what_lies_deeper_is_not(
    tmp_path: Path,
) -> None:
    code = READS.format("t.json") + READS.format("below/u.json")
    far = write(tmp_path / "far", {"one.py": code, "t.json": "[1]", "below/u.json": "[2]"})
    found = run(kernels(tmp_path / "k", "import one\n"), RECORD, far)
    assert data(found) == {"t.json": sha("[1]")}


def test_data_that_is_only_read_while_tracing_is_recorded(tmp_path: Path) -> None:
    code = "import os\ndef table():\n    with open(os.path.dirname(__file__) + '/t.bin', 'rb') as f:\n        return f.read()\n"
    far = write(tmp_path / "far", {"tools/__init__.py": code, "tools/t.bin": "x"})
    body = (
        f"import {PACKAGE}.layer\nbefore = hook.sources()\nsys.modules['tools'].table()\n"
        "result = [[n for n, _ in s if n.endswith('.bin')] for s in (before, hook.sources())]"
    )
    assert run(kernels(tmp_path / "k", "import tools\n"), body, far) == [[], ["tools/t.bin"]]


@pytest.mark.parametrize("call", ["pkgutil.get_data('tools', 't.txt')", "read()"])
def test_data_that_is_read_through_the_import_system_is_recorded(tmp_path: Path, call: str) -> None:
    code = (
        "import importlib.resources, pkgutil\n"
        f"def read():\n    return importlib.resources.files('tools').joinpath('t.txt').read_text()\n{call}\n"
    )
    far = write(tmp_path / "far", {"tools/__init__.py": code, "tools/t.txt": "x"})
    found = run(kernels(tmp_path / "k", "import tools\n"), RECORD, far)
    assert data(found) == {"tools/t.txt": sha("x")}


def test_files_that_nobody_imported_for_the_kernels_reads_are_not_recorded(tmp_path: Path) -> None:
    far = write(
        tmp_path / "far",
        {
            "idle/__init__.py": READS.format("t.json"),
            "idle/t.json": "[1]",
            "tools/__init__.py": "open(__file__ + '.log', 'w').close()\n",
        },
    )
    found = run(kernels(tmp_path / "k", "import tools\n"), f"import idle\n{RECORD}", far)
    assert sorted(n for n in found if not n.startswith(("vllm", "aiter"))) == ["tools/__init__.py"]


@pytest.mark.parametrize("compiled", [False, True])
def test_the_record_does_not_depend_on_bytecode_files(tmp_path: Path, compiled: bool) -> None:
    far = write(
        tmp_path / "far",
        {
            "tools/__init__.py": "",
            "tools/one.py": "",
            # Imported by nobody's kernels: not an input, however its code is found.
            "tools/other.py": "",
        },
    )
    if compiled:
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(far)], check=True)
    body = f"import {PACKAGE}.layer\nimport tools.other\nresult = [n for n, _ in hook.sources()]"
    found = run(kernels(tmp_path / "k", "import tools.one\n"), body, far)
    assert [n for n in found if n.startswith("tools")] == ["tools/__init__.py", "tools/one.py"]


def test_a_kernel_module_whose_import_failed_is_recorded(tmp_path: Path) -> None:
    plan = "try:\n    from . import unused\nexcept ValueError:\n    SIZE = 3\n"
    root = make_kernels(
        tmp_path, **{f"{BASE}/plan.py": plan, f"{BASE}/unused.py": "raise ValueError\n"}
    )
    assert run(root, RECORD)[f"{BASE}/unused.py"] == sha("raise ValueError\n")


def test_what_is_hashed_to_compare_an_earlier_build_is_not_recorded(tmp_path: Path) -> None:
    root = write(kernels(tmp_path / "k", "import tools\n"), {f"{BASE}/old.json": "[1]"})
    far = write(tmp_path / "far", {"tools/__init__.py": "", "tools/old.json": "[2]"})
    body = (
        f"import {PACKAGE}.layer\nfrom mono_build.sources import current_sources\n"
        f"names = ['{BASE}/old.json', '{BASE}/unused.py', 'tools/old.json']\n"
        "result = [current_sources(names, hook.roots), [n for n, _ in hook.sources()]]"
    )
    compared, recorded = run(root, body, far)
    assert dict(compared)["tools/old.json"] == sha("[2]")
    assert [n for n in recorded if n.endswith(("old.json", "unused.py"))] == []


def test_linked_directories_change_no_name(tmp_path: Path) -> None:
    code = READS.format("t.json") + (
        "OTHER = (Path(__file__).resolve().parent / 'u.json').read_text()\n"
    )
    write(tmp_path / "real", {"tools/__init__.py": code, "tools/t.json": "1", "tools/u.json": "2"})
    (tmp_path / "link").symlink_to(tmp_path / "real")
    root = kernels(tmp_path / "k", "import tools\n")
    direct, linked = run(root, RECORD, tmp_path / "real"), run(root, RECORD, tmp_path / "link")
    assert data(direct) == {"tools/t.json": sha("1"), "tools/u.json": sha("2")}
    assert linked == direct


def test_data_is_found_again_and_a_change_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"far_tools/tables/t.json": "[1]", "far_one.py": "", "t.json": "[2]"})
    monkeypatch.syspath_prepend(str(tmp_path))
    roots = SourceRoots(tmp_path / "k", (PACKAGE,))
    names = ["far_tools/tables/t.json", "t.json", "far_one.py/t.json", "gone.py/t.json"]
    assert current_sources(names, roots) == (
        ("far_one.py/t.json", sha("[2]")),
        ("far_tools/tables/t.json", sha("[1]")),
        ("gone.py/t.json", "absent"),
        ("t.json", sha("[2]")),
    )
    (tmp_path / "far_tools/tables/t.json").write_text("[4]")
    assert current_sources(names[:1], roots) == ((names[0], sha("[4]")),)


def test_data_whose_plain_name_means_another_file_is_named_through_its_module(
    tmp_path: Path,
) -> None:
    first = write(tmp_path / "first", {"t.json": "[1]"})
    far = write(tmp_path / "far", {"one.py": READS.format("t.json"), "t.json": "[2]"})
    body = (
        f"import {PACKAGE}.layer\nfrom mono_build.sources import current_sources\n"
        "names = dict(hook.sources())\n"
        "result = [names, dict(current_sources(names, hook.roots)) == names]"
    )
    found, same = run(kernels(tmp_path / "k", "import one\n"), body, first, far)
    assert data(found) == {"one.py/t.json": sha("[2]")}
    assert same


def test_an_extra_module_and_what_it_imports_are_recorded(tmp_path: Path) -> None:
    far = write(
        tmp_path / "far",
        {
            "family.py": "import json, mono_build.targets\nimport sizes\nfrom shapes import table\n",
            "sizes.py": "",
            "shapes/__init__.py": "",
            "shapes/table.py": "",
            "idle.py": "",
        },
    )
    body = f"import idle\n{RECORD}"
    found = run(kernels(tmp_path / "k", "SIZE = 3\n"), body, far, extra=["family"])
    outside = [name for name in found if not name.startswith(("vllm", "aiter"))]
    assert outside == ["family.py", "shapes/__init__.py", "shapes/table.py", "sizes.py"]
    assert found["family.py"] == sha((far / "family.py").read_text())
