"""Building the recipe without an engine and without a network: contexts, base images, servers in what comes out."""

from __future__ import annotations

import email
import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import recipe
import standin_hip
from container_kit import (
    BASE_ENVIRONMENT,
    PYTHON,
    ROOT,
    TASK,
    copy_distributions,
    environment_of_packages,
    hip,
    required,
    site_directories,
)
from container_root import Bind, Impossible, run
from recipe_builder import Base, Builder, Image, context_of, readable

PLUGIN = ROOT / "tests" / "plugin"
DEPLOYMENT = "ci/container/deployment-tests"
# No package index is asked: what the wheel needs is there, as in an image that has vLLM.
OFFLINE = {**BASE_ENVIRONMENT, "HOME": "/root", "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}


@dataclass(frozen=True)
class Workshop:
    """Where the recipe is built: a context with a deployment, and the two base images."""

    work: Path
    context: Path
    bases: dict[str, Base]

    def builder(self, name: str, cache: Path | None = None, **arguments: str) -> Builder:
        """A builder; ``name`` keeps its images apart from another's, ``cache`` is what its cache mounts show."""
        (self.work / name).mkdir()
        what = recipe.read(recipe.FILE.read_text())
        given = {"DEPLOYMENT": DEPLOYMENT, **arguments}
        return Builder(what, self.context, self.work / name, self.bases, given, cache)

    def serving(self, built: Builder, name: str, **arguments: str) -> Image:
        """The last stage anew, on what ``built`` has of the others."""
        builder = self.builder(name, **arguments)
        builder.take_from(built, but="serving")
        return builder.build("serving")

    def serve(
        self, image: Image, task: Mapping[str, Any], *volumes: Bind, **settings: str
    ) -> dict[str, Any]:
        """What a server in the image finds, started as an engine starts it, with a read-only root."""
        place = Path(tempfile.mkdtemp(dir=self.work))
        place.chmod(0o755)
        (place / "root").mkdir()
        (place / "task.json").write_text(json.dumps(task))
        server = Path(__file__).with_name("contained_server.py")
        files = (server, Path(standin_hip.__file__), place / "task.json")
        binds = [Bind(str(file), f"{TASK}/{file.name}") for file in files]
        command = [PYTHON, f"{TASK}/contained_server.py", f"{TASK}/task.json"]
        container = image.container(command, place / "root", [hip(), *binds, *volumes], **settings)
        done = run(container)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@contextmanager
def workshop_for(deployment: Mapping[str, str], packages: Mapping[str, Path]) -> Iterator[Workshop]:
    """A workshop that goes away; skips where no container can be imitated.

    Args:
        deployment: texts of the files of the deployment's directory.
        packages: what the serving image has besides: name and where it is copied from.
    """
    work = Path(tempfile.mkdtemp(prefix="mono-recipe-"))
    work.chmod(0o755)
    try:
        for name in ("build", "serve", "site", "context"):
            (work / name).mkdir()
        context = context_of(ROOT, work / "context")
        (context / DEPLOYMENT).mkdir()
        for name, text in deployment.items():
            (context / DEPLOYMENT / name).write_text(text)
        arguments = recipe.read(recipe.FILE.read_text()).arguments
        shop = Workshop(work, context, {arguments["BUILD_BASE"]: _build_base(work / "build")})
        try:
            wheels = shop.builder("wheel").build("package").path("/build/wheels")
        except Impossible as error:
            pytest.skip(f"no container can be imitated here: {error}")
        needed = [*_needs_of(wheels), "pip"]
        serving = _serve_base(work / "serve", work / "site", needed, packages)
        shop.bases[arguments["SERVE_BASE"]] = serving
        yield shop
    finally:
        shutil.rmtree(work, ignore_errors=True)


def digest_of(builder: Builder) -> str:
    """The index digest that the build stage printed."""
    output = builder.build("build").output
    (digest,) = re.findall(r"^index (sha256:\w+)$", output, re.MULTILINE)
    return str(digest)


def _base(place: Path, binds: list[Bind], paths: list[str]) -> Base:
    """A base image: a virtual environment with ``paths`` as further places of packages."""
    packages = environment_of_packages(place / "opt" / "venv")
    (packages / "base.pth").write_text("\n".join(paths) + "\n")
    readable(place)
    return Base(place, binds, OFFLINE)


def _build_base(place: Path) -> Base:
    """The image to compile in: FlyDSL, torch, a linker, pip, and the tests' family of launches."""
    binds = [Bind(str(p), f"/opt/site{i}") for i, p in enumerate((PLUGIN, *site_directories()))]
    return _base(place, binds, [b.target for b in binds])


def _serve_base(place: Path, site: Path, needed: list[str], packages: Mapping[str, Path]) -> Base:
    """The image to serve in: distributions, and packages that have the kernels."""
    copy_distributions(needed, site)
    for name, origin in packages.items():
        shutil.copytree(origin, site / name, ignore=shutil.ignore_patterns("__pycache__"))
    readable(site)
    return _base(place, [Bind(str(site), "/opt/site")], ["/opt/site"])


def _needs_of(wheels: Path) -> list[str]:
    """What the one wheel in a directory needs, without its extras."""
    (wheel,) = wheels.iterdir()
    with zipfile.ZipFile(wheel) as files:
        (name,) = (n for n in files.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(files.read(name))
    return required(metadata.get_all("Requires-Dist") or [])
