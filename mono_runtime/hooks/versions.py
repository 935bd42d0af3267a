"""Which releases of vLLM the hooks fit: they replace functions by name and take their arguments apart."""

from __future__ import annotations

import re
import sys

# Releases as ``major.minor``, for each family. What these say of the families' launches was read in
# vLLM 0.33.0; whether the kernels are those of a store is decided by their files, not by this table.
SUPPORTED: dict[str, tuple[str, ...]] = {
    "deepseek_v41": ("0.33",),
    "deepseek_v4": ("0.33",),
    "kimi_k3": ("0.33",),
    "minimax_m3": ("0.33",),
}
UNKNOWN = "unknown"
_RELEASE = re.compile(r"v?(\d+)\.(\d+)(?:\D|$)")


def engine_version() -> str:
    """The version of the vLLM of this process, without importing it; `UNKNOWN` when it has none."""
    loaded = getattr(sys.modules.get("vllm"), "__version__", None)
    if isinstance(loaded, str) and loaded:
        return loaded
    # Costs milliseconds, and a server's vLLM has said it above.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("vllm")
    except PackageNotFoundError:
        return UNKNOWN


def version_refusal(family: str, version: str) -> str | None:
    """Why the hooks of ``family`` are not used with this ``version`` of vLLM, or None when they are.

    A local part (``0.33.0+rocm700``) and a patch release do not matter.
    """
    releases = SUPPORTED.get(family, ())
    found = _RELEASE.match(version)
    if found is not None and f"{found[1]}.{found[2]}" in releases:
        return None
    fits = " and ".join(f"{release}.*" for release in releases) or "no release"
    return f"this release of mono_runtime knows {family} in vLLM {fits}, and this is vLLM {version}"
