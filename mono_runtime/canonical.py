"""Canonical JSON and digests: one value has exactly one byte form, and that form names it.

Also the checks that every format makes of the numbers and names it reads.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from typing import Any, NoReturn

from mono_runtime.errors import InvalidValue, StoreFormat

Json = Any
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_SYMBOL = re.compile(r"[!-~]+\Z")


def canonical_json(value: Json) -> bytes:
    """``value`` as UTF-8 JSON with sorted keys and no spaces; NaN and infinities are refused."""
    try:
        text = json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        return text.encode()
    except (TypeError, ValueError) as error:
        raise InvalidValue(f"not expressible as canonical JSON: {error}") from error


def json_value(text: str) -> Json:
    """The value of a JSON text; anything else, NaN and infinities too, is a `ValueError`.

    Raises:
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, parse_constant=_refuse_number)


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")


def digest_of(data: bytes) -> str:
    """``sha256:<64 hex>`` of ``data``, the form OCI descriptors use."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def digest_json(value: Json) -> str:
    """The digest of ``value``'s canonical form."""
    return digest_of(canonical_json(value))


def checked_digest(text: object, where: str) -> str:
    """``text`` if it is a sha256 digest in OCI form; anything else could be a path, so it is refused."""
    if not isinstance(text, str) or not _DIGEST.match(text):
        fix = "a digest is sha256: and 64 hexadecimal digits in lower case"
        raise InvalidValue(f"not a sha256 digest: {text!r}", where=where, fix=fix)
    return text


def checked_schema(value: Json, what: str, expected: int) -> None:
    """Raise `StoreFormat` unless the object ``value`` states the schema number ``expected``."""
    schema = value.get("schema") if isinstance(value, dict) else None
    if type(schema) is not int or schema != expected:
        raise StoreFormat(
            f"the {what} has schema {schema!r}; this version reads {expected}",
            fix="use the mono-build release that wrote the store, or rebuild the store",
        )


def checked_count(value: Json, what: str, limit: int = sys.maxsize) -> int:
    """``value`` if it is an integer from 0 to ``limit``; a number too large to be meant is refused."""
    if type(value) is not int or not 0 <= value <= limit:
        raise InvalidValue(f"{what} is {value!r}, not an integer from 0 to {limit}")
    return value


def checked_identifier(value: Json, what: str) -> str:
    """``value`` if it could be the name of a Python parameter."""
    if not isinstance(value, str) or not value.isidentifier():
        raise InvalidValue(f"{what} is {value!r}, not a name")
    return value


def checked_symbol(value: Json, what: str) -> str:
    """``value`` if it could be an ELF symbol: printable ASCII without blanks."""
    if not isinstance(value, str) or not _SYMBOL.match(value):
        raise InvalidValue(f"{what} is {value!r}, not a symbol")
    return value
