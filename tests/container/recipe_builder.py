"""What an engine does with the recipe: stages as directories, COPY by hand, each RUN in a container of its own.

An image is a directory with what differs from this machine's system (`_OWN`), bound into a root made of binds;
see `container_kit.system`. What only an engine can do is left to it: layers, history, secrets, labels.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import recipe
from container_kit import BASE_ENVIRONMENT, system
from container_root import Bind, Container, run

# Directories of an image that are its own and can be written while it is built.
_OWN = ("/build", "/opt", "/usr/local", "/tmp")
_CHANGES = {"RUN", "COPY", "ENV", "ARG", "USER", "WORKDIR"}


class StepFailed(Exception):
    """A RUN ended with another exit code than 0."""

    def __init__(self, text: str, done: subprocess.CompletedProcess[str]) -> None:
        super().__init__(f"{text}\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        self.code, self.output = done.returncode, done.stdout + done.stderr


@dataclass(frozen=True)
class Base:
    """An image that a recipe starts from, under a name.

    Attributes:
        directory: holds its `_OWN` directories.
        binds: what it has besides.
        environment: what it sets.
    """

    directory: Path
    binds: Sequence[Bind] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: dict(BASE_ENVIRONMENT))


@dataclass
class Image:
    """A stage that was built, or is being built."""

    directory: Path
    binds: Sequence[Bind]
    environment: dict[str, str]
    user: int = 0
    workdir: str = "/"
    output: str = ""

    def path(self, place: str) -> Path:
        """Where this machine has ``place`` of the image."""
        return Path(f"{self.directory}/{place.strip('/')}")

    def container(
        self, command: Sequence[str], root: Path, volumes: Sequence[Bind], **settings: str
    ) -> Container:
        """The image as an engine starts it: its user and environment, and a root that nobody may write."""
        binds, links = system()
        for volume in volumes:
            self._make_room(volume)
        own = [Bind(str(self.path(place)), place) for place in _OWN]
        return Container(
            str(root),
            command,
            [*binds, *own, *self.binds, *volumes],
            links,
            environment={**self.environment, **settings},
            user=self.user,
        )

    def _make_room(self, volume: Bind) -> None:
        """What a volume is mounted over has to be there, as in an engine's own layer of a container."""
        place = self.path(volume.target)
        if Path(volume.source).is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()


class Builder:
    """Builds stages of ``what`` with a context directory.

    Args:
        bases: images by the name that the recipe's arguments give.
        arguments: build arguments.
        cache: the directory that every cache mount shows; by default one that is empty at first.
    """

    def __init__(
        self,
        what: recipe.Recipe,
        context: Path,
        work: Path,
        bases: Mapping[str, Base],
        arguments: Mapping[str, str],
        cache: Path | None = None,
    ) -> None:
        self._recipe, self._context, self._work = what, context, work
        self._bases, self._arguments = bases, dict(arguments)
        self._cache = cache or work / "cache"
        self._images: dict[str, Image] = {}

    def take_from(self, other: Builder, but: str) -> None:
        """Use the images of another builder, but for one stage."""
        self._images |= {n: image for n, image in other._images.items() if n != but}

    def build(self, name: str) -> Image:
        """The image of a stage; what it needs is built before, everything once."""
        if name not in self._images:
            self._images[name] = self._built(self._recipe.stages[name])
        return self._images[name]

    def _built(self, stage: recipe.Stage) -> Image:
        image = self._start(stage)
        known: dict[str, str] = {}
        for one in stage.instructions:
            if one.name not in _CHANGES:
                raise NotImplementedError(one.name)
            if one.name == "ARG":
                default = recipe.argument(one)
                known |= {n: self._arguments.get(n, v) for n, v in default.items()}
            elif one.name == "RUN":
                self._run(image, one, known)
            elif one.name == "COPY":
                self._copy(image, one, known)
            else:
                _set(image, one.name, recipe.filled(one.text, known))
        return image

    def _start(self, stage: recipe.Stage) -> Image:
        directory = self._work / stage.name
        if stage.base == "scratch":
            directory.mkdir()
            return Image(directory, (), {})
        if stage.base in self._recipe.stages:
            base = self.build(stage.base)
            shutil.copytree(base.directory, directory, symlinks=True)
            return Image(directory, base.binds, {**base.environment}, base.user, base.workdir)
        found = self._bases[stage.base]
        shutil.copytree(found.directory, directory, symlinks=True)
        for place in _OWN:
            Path(f"{directory}{place}").mkdir(parents=True, exist_ok=True)
        return Image(directory, found.binds, {**found.environment})

    def _run(self, image: Image, one: recipe.Instruction, known: Mapping[str, str]) -> None:
        binds, links = system()
        own = [Bind(str(image.path(place)), place, True) for place in _OWN]
        root = self._work / "root"
        root.mkdir(exist_ok=True)
        container = Container(
            str(root),
            ["/bin/sh", "-c", one.text],
            [*binds, *own, *image.binds, *self._mounts(image, one)],
            links,
            environment={**known, **image.environment},
            directory=image.workdir,
            user=image.user,
            writable=True,
        )
        done = run(container, timeout=1800)
        image.output += done.stdout + done.stderr
        if done.returncode:
            raise StepFailed(one.text, done)

    def _mounts(self, image: Image, one: recipe.Instruction) -> list[Bind]:
        binds = []
        for mount in one.mounts():
            image.path(mount["target"]).mkdir(parents=True, exist_ok=True)
            if mount["type"] == "bind":
                source = self.build(mount["from"]).path(mount["source"])
                binds.append(Bind(str(source), mount["target"]))
            elif mount["type"] == "cache":
                self._cache.mkdir(exist_ok=True)
                binds.append(Bind(str(self._cache), mount["target"], True))
            # No secret is given, and then there is nothing at its target.
            elif mount["type"] == "secret":
                image.path(mount["target"]).rmdir()
            else:
                raise NotImplementedError(mount["type"])
        return binds

    def _copy(self, image: Image, one: recipe.Instruction, known: Mapping[str, str]) -> None:
        *sources, target = recipe.filled(one.text, known).split()
        stage = one.flag("from")
        base = self.build(stage).directory if stage else self._context
        place = image.path(target if target.startswith("/") else f"{image.workdir}/{target}")
        for source in sources:
            origin = Path(f"{base}/{source.strip('/')}")
            if origin.is_dir():
                shutil.copytree(origin, place, symlinks=True, dirs_exist_ok=True)
            else:
                into = place / origin.name if target.endswith("/") else place
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(origin, into)
                if mode := one.flag("chmod"):
                    into.chmod(int(mode, 8))


def _set(image: Image, name: str, text: str) -> None:
    if name == "ENV":
        image.environment |= dict(pair.split("=", 1) for pair in text.split())
    elif name == "USER":
        image.user = int(text.partition(":")[0])
    else:
        image.workdir = text
        image.path(text).mkdir(parents=True, exist_ok=True)


def context_of(project: Path, place: Path) -> Path:
    """The build context that the ignore file lets through, copied to ``place``."""
    kept, left_out = recipe.ignored_but(recipe.IGNORE.read_text())
    names = shutil.ignore_patterns(*(pattern.removeprefix("**/") for pattern in left_out))
    for pattern in kept:
        for origin in project.glob(pattern):
            into = place / origin.relative_to(project)
            into.parent.mkdir(parents=True, exist_ok=True)
            if origin.is_dir():
                shutil.copytree(origin, into, ignore=names)
            else:
                shutil.copy(origin, into)
    return place


def readable(place: Path) -> None:
    """Let every user read and search ``place``, as an image's files are."""
    for path in (place, *place.rglob("*")):
        if not path.is_symlink():
            path.chmod(
                path.stat().st_mode
                | (0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
            )
