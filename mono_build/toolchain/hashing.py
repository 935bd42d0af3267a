"""Digests of files and of trees: names relative to the tree and contents, never paths or times."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_BLOCK = 1 << 20


def file_sha256(path: Path) -> str:
    """sha256 hex of the file's content, following links; raises `OSError`."""
    digest = hashlib.sha256()
    buffer = bytearray(_BLOCK)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(view[:count])
    return digest.hexdigest()


def hash_files(files: Mapping[str, Path]) -> dict[str, str]:
    """sha256 hex of each named file; large ones first, in threads, as hashing releases the GIL."""
    ordered = sorted(files.items(), key=lambda item: -item[1].stat().st_size)
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        digests = pool.map(file_sha256, (path for _, path in ordered))
        return dict(zip((name for name, _ in ordered), digests, strict=True))


def tree_digest(files: Mapping[str, Path]) -> str:
    """One sha256 hex over (name, content) of every file."""
    return names_digest(hash_files(files).items())


def names_digest(pairs: Iterable[tuple[str, str]]) -> str:
    """One sha256 hex over sorted (name, value) pairs; the separators keep them from running together."""
    digest = hashlib.sha256()
    for name, value in sorted(pairs):
        digest.update(f"{name}\0{value}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
