"""GPU architecture names as users and devices write them: ``gfx942``, ``GFX942:sramecc+:xnack-``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mono_runtime.errors import InvalidValue

# CDNA3 (MI300/MI325) and CDNA4 (MI350/MI355): the two that vLLM's mono kernels are written for.
KNOWN = ("gfx942", "gfx950")
_NAME = re.compile(r"gfx[0-9a-f]{3,5}\Z")
_FEATURE = re.compile(r"(sramecc|xnack)([+-])\Z")


@dataclass(frozen=True, slots=True)
class Architecture:
    """A target: its base name and the feature flags that were spelt out (``xnack`` -> on or off)."""

    name: str
    features: tuple[tuple[str, bool], ...] = ()

    def __str__(self) -> str:
        return ":".join([self.name, *(f"{n}{'+' if on else '-'}" for n, on in self.features)])

    def accepts(self, device: Architecture) -> bool:
        """Whether code for this target runs on ``device``: same base, and no flag that contradicts."""
        have = dict(device.features)
        return self.name == device.name and all(have.get(n, on) == on for n, on in self.features)


def checked_arch(name: object) -> str:
    """``name`` if it is the base name of a known architecture, as the formats spell it."""
    if not isinstance(name, str) or name not in KNOWN:
        raise InvalidValue(f"unknown architecture {name!r}", fix=f"known: {', '.join(KNOWN)}")
    return name


def parse_architecture(text: str) -> Architecture:
    """``text`` as an `Architecture`; case is normalised, unknown names raise `InvalidValue`."""
    name, *flags = text.strip().lower().split(":")
    if name not in KNOWN:
        # Costs milliseconds, which only a misspelt name is worth.
        from difflib import get_close_matches

        near = get_close_matches(name, KNOWN, n=1, cutoff=0.6) if _NAME.match(name) else []
        hint = f"did you mean {near[0]}? " if near else ""
        raise InvalidValue(f"unknown architecture {text!r}", fix=f"{hint}known: {', '.join(KNOWN)}")
    features: dict[str, bool] = {}
    for flag in flags:
        match = _FEATURE.match(flag)
        if match is None or match[1] in features:
            raise InvalidValue(
                f"unknown feature flag {flag!r} in architecture {text!r}",
                fix="flags are sramecc and xnack, each once, with + or -: gfx942:sramecc+:xnack-",
            )
        features[match[1]] = match[2] == "+"
    return Architecture(name, tuple(sorted(features.items())))
