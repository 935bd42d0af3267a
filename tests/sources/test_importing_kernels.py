"""The import hook and the record of what a build read, each case in an interpreter of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_trees import BASE, PACKAGE, STOP, make_aiter, make_kernels, run, sha, write

from mono_build.sources.helpers import find_helpers
from mono_build.sources.roots import SourceRoots, current_sources


def test_parents_are_bare_and_only_kernels_run(tmp_path: Path) -> None:
    body = (
        f"import {PACKAGE}.layer as layer, vllm.models\n"
        "result = [layer.plan.SIZE, vllm.__file__, list(vllm.models.__path__)]"
    )
    assert run(make_kernels(tmp_path), body) == [3, None, [f"{tmp_path}/vllm/models"]]


@pytest.mark.parametrize("name", ["vllm.config", "vllm.models.fam.amd.model", "aiter.ops.gemm"])
def test_anything_else_of_the_engine_is_refused_by_name(tmp_path: Path, name: str) -> None:
    body = f"try:\n    import {name}\nexcept ImportError as e:\n    result = [str(e), e.name]"
    message, imported = run(make_kernels(tmp_path), body)
    assert message.startswith(f"{name} is not imported: of {name.split('.')[0]} only ")
    assert imported == name


def test_a_missing_kernel_module_is_a_module_not_found(tmp_path: Path) -> None:
    body = f"try:\n    import {PACKAGE}.gone\nexcept ModuleNotFoundError as e:\n    result = str(e)"
    assert run(make_kernels(tmp_path), body) == f"no kernel module {PACKAGE}.gone"


def test_an_engine_that_is_imported_already_is_refused(tmp_path: Path) -> None:
    root = make_kernels(tmp_path)
    body = (
        "hook.uninstall()\nimport types\nsys.modules['vllm'] = types.ModuleType('vllm')\n"
        "try:\n    hook.install()\nexcept Exception as e:\n    result = e.what"
    )
    assert run(root, body) == "vllm is imported already, so its kernels cannot be isolated"


def test_the_record_holds_what_ran_and_nothing_else(tmp_path: Path) -> None:
    root = make_kernels(tmp_path)
    body = f"import {PACKAGE}.layer\nresult = dict(hook.sources())"
    found = run(root, body)
    assert sorted(found) == [
        "aiter/ops/flydsl/kernels/kernels_common.py",
        f"{BASE}/__init__.py",
        f"{BASE}/common/__init__.py",
        f"{BASE}/common/ops.py",
        f"{BASE}/layer.py",
        f"{BASE}/plan.py",
    ]
    assert found[f"{BASE}/plan.py"] == sha("SIZE = 3\n")


def test_a_helper_of_a_helper_elsewhere_is_recorded(tmp_path: Path) -> None:
    far = write(
        tmp_path / "far",
        {
            "tools/__init__.py": "",
            "tools/one.py": "import importlib\nimport json\ntwo = importlib.import_module('deep')\n",
            "deep.py": "from other import VALUE\n",
            "other/__init__.py": "VALUE = 1\n",
            "idle.py": "",
        },
    )
    root = make_kernels(tmp_path / "k", **{f"{BASE}/plan.py": "import tools.one\nSIZE = 3\n"})
    # `other` and `idle` are loaded before any kernel asks for them.
    body = f"import other, idle\nimport {PACKAGE}.layer\nresult = [p for p, _ in hook.sources()]"
    outside = [p for p in run(root, body, far) if not p.startswith(("vllm", "aiter"))]
    assert outside == ["deep.py", "other/__init__.py", "tools/__init__.py", "tools/one.py"]


def test_a_file_that_a_kernel_reads_is_recorded(tmp_path: Path) -> None:
    root = make_kernels(
        tmp_path,
        **{
            f"{BASE}/table.json": "[1]",
            f"{BASE}/plan.py": "from pathlib import Path\n"
            "SIZE = (Path(__file__).parent / 'table.json').read_text()\n"
            "(Path(__file__).parent / 'log.txt').write_text('x')\n",
        },
    )
    found = run(root, f"import {PACKAGE}.layer\nresult = dict(hook.sources())")
    assert found[f"{BASE}/table.json"] == sha("[1]")
    assert f"{BASE}/log.txt" not in found


def test_the_record_does_not_depend_on_where_the_tree_lies(tmp_path: Path) -> None:
    body = f"import {PACKAGE}.layer\nresult = hook.sources()"
    here = run(make_kernels(tmp_path / "a"), body)
    (tmp_path / "link").symlink_to(make_kernels(tmp_path / "deep" / "b"))
    assert run(tmp_path / "link", body) == here


def test_a_stale_bytecode_file_is_not_run(tmp_path: Path) -> None:
    root = make_kernels(tmp_path)
    plan = root / BASE / "plan.py"
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(plan)], check=True)
    before = plan.stat()
    plan.write_text("SIZE = 4\n")
    os.utime(plan, ns=(before.st_atime_ns, before.st_mtime_ns))
    body = f"import {PACKAGE}.plan as plan\nresult = [plan.SIZE, dict(hook.sources())['{BASE}/plan.py']]"
    assert run(root, body) == [4, sha("SIZE = 4\n")]


def test_a_real_aiter_provides_the_helpers(tmp_path: Path) -> None:
    site = make_aiter(tmp_path / "site", **{"aiter/_version.py": "__version__ = '0.1.9'\n"})
    helpers = find_helpers([str(site)])
    assert helpers.facts() == (("provider", "aiter"), ("version", "0.1.9"))
    body = (
        f"import {PACKAGE}.common.ops as ops\n"
        "result = [ops.kernel_signature(), [p for p, _ in hook.sources() if p.startswith('aiter')]]"
    )
    assert run(make_kernels(tmp_path / "k"), body, site) == [
        "real",
        ["aiter/ops/flydsl/kernels/kernels_common.py", "aiter/ops/flydsl/kernels/near.py"],
    ]


def test_the_unrelated_aiter_is_recognised_and_never_imported(tmp_path: Path) -> None:
    site = write(tmp_path / "site", {"aiter/__init__.py": STOP})
    helpers = find_helpers([str(site)])
    assert helpers.provider == "mono-build"
    assert "not AMD's AITER" in helpers.looked[0].outcome
    body = f"import {PACKAGE}.common.ops as ops\nresult = ops.kernel_signature(s=8, i=False)"
    assert run(make_kernels(tmp_path / "k"), body, site) == "s8_i0"


def test_an_aiter_without_a_needed_function_is_not_used(tmp_path: Path) -> None:
    site = make_aiter(tmp_path)
    (site / "aiter/ops/flydsl/kernels/kernels_common.py").write_text("def other(): ...\n")
    helpers = find_helpers([str(site)])
    assert helpers.facts() == (("provider", "mono-build"), ("version", "1"))
    assert "lacks kernels_common.kernel_signature" in helpers.looked[0].outcome


def test_sources_are_compared_without_importing_them(tmp_path: Path) -> None:
    root = make_kernels(tmp_path)
    roots = SourceRoots(root, (PACKAGE,))
    paths = [
        f"{BASE}/plan.py",
        f"{BASE}/gone.py",
        f"{BASE}/common/ops.py",
        "vllm/../../x",
        "/etc/passwd",
    ]
    (root / BASE / "common" / "ops").mkdir()
    (root / BASE / "common" / "ops" / "__init__.py").write_text("")
    assert current_sources(paths, roots) == (
        ("/etc/passwd", "absent"),
        ("vllm/../../x", "absent"),
        (f"{BASE}/common/ops.py", "hidden"),
        (f"{BASE}/gone.py", "absent"),
        (f"{BASE}/plan.py", sha("SIZE = 3\n")),
    )


def test_a_helper_elsewhere_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"far_tools/one.py": "x = 1\n"})
    roots = SourceRoots(tmp_path / "k", (PACKAGE,))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert current_sources(["far_tools/one.py"], roots) == (("far_tools/one.py", sha("x = 1\n")),)
