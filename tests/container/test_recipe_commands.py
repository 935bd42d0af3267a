"""The recipe's own commands, run stage by stage without an engine and without a network."""

from __future__ import annotations

import email
import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import recipe
from container_kit import (
    BASE_ENVIRONMENT,
    PYTHON,
    ROOT,
    TASK,
    copy_distributions,
    environment_of_packages,
    required,
    site_directories,
)
from container_root import Bind, Impossible, run
from recipe_builder import Base, Builder, Image, StepFailed, context_of, readable

pytestmark = pytest.mark.slow
DEFAULTS = {"fold": False, "pause": 0.0, "behaviour": "work"}
SCRIPTS = Path(__file__).parent
PLUGIN = ROOT / "tests" / "plugin"
# Six launches of the tests' own family, which needs no compiler; `fold` gives equal code.
MANIFEST = (
    "schema: 1\nbuilds:\n  - family: standin\n    arch: gfx950\n    tp: 1\n    rows: [1, 2, 3]\n"
)
# No package index is asked: what the wheel needs is there, as in an image that has vLLM.
OFFLINE = {**BASE_ENVIRONMENT, "HOME": "/root", "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}


@dataclass(frozen=True)
class Workshop:
    """Where the recipe is built: a context with a deployment, and the two base images."""

    work: Path
    context: Path
    bases: dict[str, Base]

    def builder(self, name: str, **arguments: str) -> Builder:
        """A builder; ``name`` keeps its images apart from another's."""
        (self.work / name).mkdir()
        given = {"KERNELS": "installed", "DEPLOYMENT": "ci/container/deployment-tests", **arguments}
        what = recipe.read(recipe.FILE.read_text())
        return Builder(what, self.context, self.work / name, self.bases, given)

    def serving(self, built: Builder, name: str, **arguments: str) -> Image:
        """The last stage anew, on what ``built`` has of the others."""
        builder = self.builder(name, **arguments)
        builder.take_from(built, but="serving")
        return builder.build("serving")


def base(place: Path, binds: list[Bind], paths: list[str]) -> Base:
    """A base image: a virtual environment with ``paths`` as further places of packages."""
    packages = environment_of_packages(place / "opt" / "venv")
    (packages / "base.pth").write_text("\n".join(paths) + "\n")
    readable(place)
    return Base(place, binds, OFFLINE)


def build_base(place: Path) -> Base:
    """The image to compile in: FlyDSL, torch, a linker, pip, and the tests' family of launches."""
    binds = [Bind(str(p), f"/opt/site{i}") for i, p in enumerate((PLUGIN, *site_directories()))]
    return base(place, binds, [b.target for b in binds])


def serve_base(place: Path, site: Path, needed: list[str]) -> Base:
    """The image to serve in: the distributions that are ``needed``, and the package that has the kernels."""
    copy_distributions(needed, site)
    shutil.copytree(
        PLUGIN / "standin_kernels",
        site / "standin_kernels",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    readable(site)
    return base(place, [Bind(str(site), "/opt/site")], ["/opt/site"])


def needs_of(wheels: Path) -> list[str]:
    """What the one wheel in a directory needs, without its extras."""
    (wheel,) = wheels.iterdir()
    with zipfile.ZipFile(wheel) as files:
        (name,) = (n for n in files.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(files.read(name))
    return required(metadata.get_all("Requires-Dist") or [])


@pytest.fixture(scope="module")
def workshop() -> Iterator[Workshop]:
    work = Path(tempfile.mkdtemp(prefix="mono-recipe-"))
    work.chmod(0o755)
    for name in ("build", "serve", "site", "context"):
        (work / name).mkdir()
    context = context_of(ROOT, work / "context")
    deployment = context / "ci" / "container" / "deployment-tests"
    deployment.mkdir()
    (deployment / "manifest.yaml").write_text(MANIFEST)
    arguments = recipe.read(recipe.FILE.read_text()).arguments
    shop = Workshop(work, context, {arguments["BUILD_BASE"]: build_base(work / "build")})
    try:
        wheels = shop.builder("wheel").build("package").path("/build/wheels")
    except Impossible as error:
        pytest.skip(f"no container can be imitated here: {error}")
    needed = [*needs_of(wheels), "pip"]
    shop.bases[arguments["SERVE_BASE"]] = serve_base(work / "serve", work / "site", needed)
    yield shop
    shutil.rmtree(work, ignore_errors=True)


@pytest.fixture(scope="module")
def built(workshop: Workshop) -> Builder:
    """Every stage, built once, without a pin."""
    builder = workshop.builder("unpinned")
    builder.build("serving")
    return builder


def digest_of(builder: Builder) -> str:
    (digest,) = re.findall(r"^index (sha256:\w+)$", builder.build("build").output, re.MULTILINE)
    return digest


def test_the_export_stage_holds_just_the_store(built: Builder) -> None:
    store = built.build("store").directory
    assert sorted(p.name for p in store.iterdir()) == ["blobs", "index.json", "oci-layout"]
    output = built.build("build").output
    assert "6 launches planned: 3 compiled, 3 reused, 0 failed" in output
    assert "no faults in" in output
    assert "coverage is not proven" in output


def served(image: Image, workshop: Workshop, *volumes: Bind, **settings: str) -> dict[str, Any]:
    """What a server in the image finds, started as an engine starts it, with a read-only root."""
    place = Path(tempfile.mkdtemp(dir=workshop.work))
    place.chmod(0o755)
    (place / "root").mkdir()
    keys = [
        {"family": "standin", "launch": "work", "arch": "gfx950", "build": build}
        for build in ({**DEFAULTS, "rows": rows} for rows in (1, 2, 3))
    ]
    (place / "task.json").write_text(json.dumps({"keys": keys, "arguments": None, "look": True}))
    files = (SCRIPTS / "contained_server.py", place / "task.json")
    binds = [Bind(str(file), f"{TASK}/{file.name}") for file in files]
    command = [PYTHON, f"{TASK}/contained_server.py", f"{TASK}/task.json"]
    done = run(image.container(command, place / "root", [*binds, *volumes], **settings))
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_serving_stage_serves_the_pinned_store(workshop: Workshop, built: Builder) -> None:
    pin = digest_of(built)
    image = workshop.serving(built, "pinned", STORE_DIGEST=pin)
    assert f"6 launches, 3 kernel files as built, index {pin}" in image.output
    assert image.environment["MONO_STORE_DIGEST"] == pin
    found = served(image, workshop)
    check_served(found, pin)


def test_a_mounted_store_is_served_too(workshop: Workshop, built: Builder) -> None:
    image, store = built.build("serving-mounted"), built.build("store").directory
    assert not image.path("/opt/mono-store").exists()
    pin = digest_of(built)
    found = served(image, workshop, Bind(str(store), "/opt/mono-store"), MONO_STORE_DIGEST=pin)
    check_served(found, pin)


def check_served(found: Mapping[str, Any], pin: str) -> None:
    around, server = found["surroundings"], found["served"]
    assert around["ids"] == [65534, 65534, 65534, 65534, []]
    assert (around["writable"], around["reached"], found["attempts"]) == ([], [], [])
    # mono-build itself is there for its commands; nothing that compiles is.
    assert around["compilers"] == ["mono_build"]
    # Loading is for code objects with symbols; see test_serving_stage.
    assert server == {"store": pin, "policy": "strict", "missing": []}


def test_a_store_of_another_digest_ends_the_build_of_the_image(
    workshop: Workshop, built: Builder
) -> None:
    other = "sha256:" + "0" * 64
    with pytest.raises(StepFailed) as failed:
        workshop.serving(built, "other", STORE_DIGEST=other)
    # StoreDiffers.
    assert failed.value.code == 1
    assert "error: " in failed.value.output
    assert other in failed.value.output


def test_kernels_that_were_not_compiled_end_the_build_of_the_image(
    workshop: Workshop, built: Builder
) -> None:
    helper = workshop.work / "site" / "standin_kernels" / "helper.py"
    before = helper.read_bytes()
    helper.write_bytes(before + b"\n# a patched vLLM\n")
    try:
        with pytest.raises(StepFailed) as failed:
            workshop.serving(built, "patched")
    finally:
        helper.write_bytes(before)
    # KernelSourcesDiffer.
    assert failed.value.code == 3
    assert "standin_kernels/helper.py: its content is another" in failed.value.output
