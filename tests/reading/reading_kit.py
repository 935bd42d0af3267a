"""Reading whole stores, and forging stores whose digests are all right and whose content is not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from store_kit import blob_file, code, key

from mono_runtime.layers import Layers, open_layers

ROWS = (1, 2, 3)
DOCUMENTS = ("listing", "manifest", "index", "artefact", "inputs")


def use(layers: Layers, rows: int) -> str:
    """Find, read and check one launch; the sha256 of its code."""
    found = layers.find(key(rows))
    artefact = layers.artefact(found)
    assert layers.inputs(found).kernels[0] == ("package", "vllm")
    (code_object,) = artefact.code_objects
    return hashlib.sha256(layers.code(found, code_object)).hexdigest()


def expected(rows: int) -> str:
    return hashlib.sha256(code(rows)).hexdigest()


def opened(store: Path) -> Layers:
    return open_layers(store, environ={})


def dumped(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def named(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Forgery:
    """A store's JSON documents, as whoever knows the format could write them anew.

    The artefact and the inputs are those of the first entry.
    """

    def __init__(self, store: Path) -> None:
        self.store = store
        self.listing = json.loads((store / "index.json").read_bytes())
        self.manifest = self._blob(self.listing["manifests"][0]["digest"])
        self.index = self._blob(self.manifest["config"]["digest"])
        self.artefact = self._blob(self.index["entries"][0]["artefact"])
        self.inputs = self._blob(self.artefact["inputs"])

    def _blob(self, digest: str) -> Any:
        return json.loads(blob_file(self.store, digest).read_bytes())

    def put(self, data: bytes) -> str:
        digest = named(data)
        blob_file(self.store, digest).write_bytes(data)
        return digest

    def write(
        self, change: str = "", how: Callable[[Any], Any] = lambda value: value, raw: bytes = b""
    ) -> None:
        """Write all documents, with the one named ``change`` altered by ``how`` or replaced by ``raw``."""

        def text(name: str, value: Any) -> bytes:
            if name != change:
                return dumped(value)
            return raw or dumped(how(json.loads(dumped(value))))

        artefact = {**self.artefact, "inputs": self.put(text("inputs", self.inputs))}
        first = {
            **self.index["entries"][0],
            "artefact": self.put(text("artefact", artefact)),
            "ir": artefact["ir"],
        }
        index = text("index", {**self.index, "entries": [first, *self.index["entries"][1:]]})
        config = {**self.manifest["config"], "digest": self.put(index), "size": len(index)}
        manifest = text("manifest", {**self.manifest, "config": config})
        only = {
            **self.listing["manifests"][0],
            "digest": self.put(manifest),
            "size": len(manifest),
        }
        listing = text("listing", {**self.listing, "manifests": [only]})
        (self.store / "index.json").write_bytes(listing)
