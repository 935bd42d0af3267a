"""Canonical JSON and digests: one value has exactly one byte form, and that form names it."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from mono_runtime.errors import InvalidValue

Json = Any
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")


def canonical_json(value: Json) -> bytes:
    """``value`` as UTF-8 JSON with sorted keys and no spaces; NaN and infinities are refused."""
    try:
        text = json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        return text.encode()
    except (TypeError, ValueError) as error:
        raise InvalidValue(f"not expressible as canonical JSON: {error}") from error


def digest_of(data: bytes) -> str:
    """``sha256:<64 hex>`` of ``data``, the form OCI descriptors use."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def digest_json(value: Json) -> str:
    """The digest of ``value``'s canonical form."""
    return digest_of(canonical_json(value))


def checked_digest(text: object, where: str) -> str:
    """``text`` if it is a sha256 digest in OCI form; anything else could be a path, so it is refused."""
    if not isinstance(text, str) or not _DIGEST.match(text):
        raise InvalidValue(f"not a sha256 digest: {text!r}", where=where)
    return text
