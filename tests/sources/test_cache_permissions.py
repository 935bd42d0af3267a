"""Caches of other users, and caches that other users read."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kernel_trees import MONO, make_wheel

# Everything is imported before the user changes, who may not read this project.
AS_ANOTHER_USER = """
import json, os, sys
from pathlib import Path
from mono_build.errors import ToolchainError
from mono_build.sources import cache_directory, resolve_kernels
import mono_build.sources.wheel, email.parser, importlib.metadata
if os.getuid() == 0:
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
said, environ = [], json.loads(sys.argv[1])
def never(requirement, directory):
    raise AssertionError("fetched")
try:
    cache = cache_directory(environ, said.append)
    found = str(cache)
    if len(sys.argv) > 2:
        found = resolve_kernels(sys.argv[2], environ, packages=[sys.argv[3]], fetch=never).version
except ToolchainError as error:
    found = [error.what, error.where]
print(json.dumps([found, said]))
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that every user can reach; those of pytest are private."""
    path = Path(tempfile.mkdtemp(dir="/tmp"))
    path.chmod(0o755)
    (path / "tmp").mkdir()
    (path / "tmp").chmod(0o1777)
    yield path
    for directory, names, _ in os.walk(path):
        for name in names:
            Path(directory, name).chmod(0o755)
    shutil.rmtree(path)


@pytest.fixture
def locked_up(shared: Path) -> Path:
    """A directory that nobody but root may use, as one of mode 0700 is to another user."""
    directory = shared / "locked"
    directory.mkdir()
    directory.chmod(0)
    return directory


def as_another_user(environ: dict[str, str], *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER_USER, json.dumps(environ), *arguments],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_chosen_cache_of_another_user_is_an_error_that_names_it(locked_up: Path) -> None:
    found, _ = as_another_user({"MONO_CACHE": str(locked_up)})
    assert found == [
        "MONO_CACHE names a directory that cannot be made or written",
        str(locked_up),
    ]


@pytest.mark.parametrize("below", ["", "home"])
def test_a_home_of_another_user_is_passed_over_and_that_is_said(
    shared: Path, locked_up: Path, below: str
) -> None:
    home = locked_up / below
    found, said = as_another_user({"HOME": str(home), "TMPDIR": str(shared / "tmp")})
    assert Path(found).parent == shared / "tmp"
    assert len(said) == 1
    assert said[0].startswith(f"{home}/.cache/mono-build cannot be written: ")


def test_a_filled_cache_that_only_its_owner_may_read_is_passed_over(shared: Path) -> None:
    cache = shared / "home" / ".cache" / "mono-build"
    (cache / "kernels").mkdir(parents=True)
    (cache / "kernels").chmod(0)
    cache.chmod(0o555)
    found, _ = as_another_user({"HOME": f"{shared}/home", "TMPDIR": f"{shared}/tmp"})
    assert Path(found).parent == shared / "tmp"


def test_a_wheel_that_may_not_be_read_is_named(shared: Path) -> None:
    wheel = make_wheel(shared / "wheels")
    wheel.chmod(0)
    environ = {"MONO_CACHE": f"{shared}/tmp/cache"}
    found, _ = as_another_user(environ, str(wheel), MONO)
    assert found == ["the kernel sources cannot be read: Permission denied", str(wheel)]


def test_a_cache_that_was_filled_under_a_private_umask_serves_other_users(shared: Path) -> None:
    wheel = make_wheel(shared / "index")
    script = (
        "import os, shutil, sys\nfrom mono_build.sources import resolve_kernels\nos.umask(0o077)\n"
        "def fetch(requirement, directory):\n"
        f"    shutil.copyfile({str(wheel)!r}, directory / {wheel.name!r})\n"
        f"resolve_kernels('vllm==0.33.0', {{'MONO_CACHE': {f'{shared}/a/cache'!r}}}, fetch=fetch)\n"
    )
    subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=True,
    )
    made = [shared / "a", *(shared / "a").rglob("*")]
    modes = {(p.is_dir(), stat.S_IMODE(p.stat().st_mode)) for p in made}
    assert modes == {(True, 0o755), (False, 0o644)}
    assert any(p.name == "layer.py" for p in made)
    found, said = as_another_user({"MONO_CACHE": f"{shared}/a/cache"}, "vllm==0.33.0", MONO)
    assert (found, said) == ("0.33.0", [])


def test_only_the_cache_itself_is_opened_up_in_a_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        "import os\nfrom mono_build.sources import cache_directory\nos.umask(0o077)\n"
        f"cache_directory({{'HOME': {str(tmp_path)!r}}})\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    subprocess.run([sys.executable, "-c", script], check=True)
    assert stat.S_IMODE((tmp_path / ".cache").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / ".cache" / "mono-build").stat().st_mode) == 0o755
