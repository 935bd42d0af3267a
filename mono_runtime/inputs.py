"""The inputs of an artefact: every file, tool and setting that its bytes depend on, by digest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mono_runtime.canonical import Json, checked_count, checked_schema, digest_json
from mono_runtime.errors import InvalidValue

INPUTS_SCHEMA = 1
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a build read.

    Attributes:
        sources: (import path such as ``vllm/models/x.py``, sha256 hex) of every file imported or
            read while tracing, sorted.
        kernels: the kernel source: ``package``, ``version`` and, for a wheel, ``wheel_sha256``.
        helpers: who gave AITER's helper modules: ``provider`` and ``version``.
        toolchain: name -> ``version``/``sha256`` of FlyDSL, the linker, the device bitcode and this
            project's own code; versions of torch and numpy, and Python's minor version.
        environment: the variables that change code and were set.
        builder: version of this project's build format (not of its release).
    """

    sources: Pairs
    kernels: Pairs
    helpers: Pairs
    toolchain: tuple[tuple[str, Pairs], ...]
    environment: Pairs
    builder: int

    @property
    def digest(self) -> str:
        """The name of this set of inputs."""
        return digest_json(self.to_json())

    def direct_key(self, launch_key: str) -> str:
        """The name of a build: the launch key's digest with everything that decides its bytes.

        Which distribution the files came from is provenance; their content is in ``sources``.
        """
        deciding = {"launch": launch_key, **self.to_json()}
        del deciding["kernels"], deciding["helpers"]
        return digest_json(deciding)

    def to_json(self) -> Json:
        return {
            "schema": INPUTS_SCHEMA,
            "sources": dict(self.sources),
            "kernels": dict(self.kernels),
            "helpers": dict(self.helpers),
            "toolchain": {name: dict(facts) for name, facts in self.toolchain},
            "environment": dict(self.environment),
            "builder": self.builder,
        }

    @staticmethod
    def from_json(value: Json) -> Inputs:
        """The inputs that `to_json` wrote; anything else raises `InvalidValue`.

        Raises:
            StoreFormat: they were written in another version of the format.
        """
        checked_schema(value, "list of inputs", INPUTS_SCHEMA)
        try:
            return Inputs(
                sources=pairs(value["sources"]),
                kernels=pairs(value["kernels"]),
                helpers=pairs(value["helpers"]),
                toolchain=tuple(sorted((n, pairs(f)) for n, f in value["toolchain"].items())),
                environment=pairs(value["environment"]),
                builder=checked_count(value["builder"], "the build format"),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidValue(f"not a list of inputs: {error!r}") from error


def pairs(mapping: Mapping[str, str]) -> Pairs:
    """``mapping`` as a sorted tuple of text pairs, hashable and ordered."""
    return tuple(sorted((str(k), str(v)) for k, v in mapping.items()))
