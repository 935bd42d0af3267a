"""Images for tests: what of this machine stands for a base image, and what is in an image besides."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import recipe
import standin_hip
from container_root import Bind, Container, Impossible, run
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
VENV = "/opt/venv"
PYTHON = f"{VENV}/bin/python3"
STORE = "/opt/mono-store"
TASK = "/opt/task"
# What a base image sets.
BASE_ENVIRONMENT = {"PATH": f"{VENV}/bin:/usr/local/bin:/usr/bin:/bin"}


def system() -> tuple[list[Bind], dict[str, str]]:
    """Binds and links of a base image: the C library, a shell and Python without any package."""
    binds, links = [], {}
    for place in ("/usr", "/bin", "/sbin", "/lib", "/lib64"):
        path = Path(place)
        if path.is_symlink():
            links[place] = str(path.readlink())
        elif path.is_dir():
            binds.append(Bind(place, place))
    if not Path(sys.base_prefix).is_relative_to("/usr"):
        binds.append(Bind(sys.base_prefix, sys.base_prefix))
    return binds, links


def environment_of_packages(place: Path) -> Path:
    """A virtual environment without packages at ``place``, made to be seen as `VENV`; its site-packages."""
    interpreter = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    subprocess.run(
        [str(interpreter), "-I", "-m", "venv", "--without-pip", str(place)],
        check=True,
        capture_output=True,
    )
    return place / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"


def copy_packages(names: Iterable[str], target: Path) -> None:
    """Copy packages of this project, as they would be installed."""
    for name in names:
        shutil.copytree(
            ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__", "*.c")
        )


def hip() -> Bind:
    """The stand-in HIP library, where ROCm has it."""
    library = standin_hip.library()
    return Bind(str(library), f"/opt/rocm/lib/{library.name}")


def site_directories() -> list[Path]:
    """Where this interpreter finds installed packages."""
    found = (Path(p).resolve() for p in sys.path if p.endswith(("site-packages", "dist-packages")))
    return [p for p in dict.fromkeys(found) if p.is_dir()]


def copy_distributions(names: Iterable[str], target: Path) -> None:
    """Copy installed distributions, and what they need without extras, as they lie in site-packages."""
    wanted, done = list(names), set[str]()
    while wanted:
        name = re.sub(r"[-_.]+", "-", wanted.pop()).lower()
        if name in done:
            continue
        done.add(name)
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            # Scripts lie beside; bytecode would be of another path.
            if ".." in file.parts or file.suffix == ".pyc":
                continue
            into = target / file
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(file.locate()), into)
        wanted += required(distribution.requires or ())


def required(requirements: Iterable[str]) -> list[str]:
    """The names of those requirements that hold here without an extra."""
    parsed = map(Requirement, requirements)
    return [r.name for r in parsed if r.marker is None or r.marker.evaluate({"extra": ""})]


def serving_stage(public: Path, image: Path, store: Path, pin: str) -> Container:
    """The recipe's serving stage with ``store`` mounted read-only, and the server of these tests in it.

    Args:
        public: a directory that every user can reach.
        image: the virtual environment of the image.
        pin: the index digest that the site gives.
    """
    binds, links = system()
    given = recipe.read(recipe.FILE.read_text()).environment("serving", {"STORE_DIGEST": pin})
    task = public / "task.json"
    scripts = (Path(__file__).with_name("contained_server.py"), Path(standin_hip.__file__), task)
    return Container(
        str(public / "root"),
        [PYTHON, f"{TASK}/contained_server.py", f"{TASK}/task.json"],
        [
            *binds,
            Bind(str(image), VENV),
            hip(),
            Bind(str(store), STORE),
            *(Bind(str(script), f"{TASK}/{script.name}") for script in scripts),
        ],
        links,
        environment={**BASE_ENVIRONMENT, **given},
    )


def run_task(
    task: Mapping[str, object],
    container: Container,
    *,
    environment: Mapping[str, str] | None = None,
    **changes: Any,
) -> subprocess.CompletedProcess[str]:
    """Let the server do ``task`` in ``container`` with ``changes``; skips where there are no namespaces."""
    root = Path(container.root)
    root.with_name("task.json").write_text(json.dumps(task))
    root.mkdir(exist_ok=True)
    variables = {**container.environment, **(environment or {})}
    try:
        return run(replace(container, environment=variables, **changes))
    except Impossible as error:
        pytest.skip(f"no container can be imitated here: {error}")
