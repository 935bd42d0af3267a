"""Statements of made-up ranks."""

from __future__ import annotations

from typing import Any

from mono_runtime.ranks import LoadedLaunch, Statement


def statement(launches: int = 3, **others: Any) -> Statement:
    """A statement of a rank that loaded everything."""
    values = {
        "store": "sha256:" + "a" * 64,
        "policy": "strict",
        "architecture": "gfx942:sramecc+:xnack-",
        "compute_units": 304,
        "loaded": tuple(loaded(n) for n in range(launches)),
    }
    return Statement(**{**values, **others})


def loaded(number: int, artefact: int | None = None, workgroups: int | None = 2) -> LoadedLaunch:
    return LoadedLaunch(
        f"deepseek_v41/k1 gfx942 tokens={number:03}",
        f"sha256:{number if artefact is None else artefact:064x}",
        workgroups,
    )
