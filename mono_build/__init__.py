"""Compile the FlyDSL launches of LLM servers once, without a GPU, into a content-addressed store."""

from mono_runtime import __version__

__all__ = ["__version__"]
