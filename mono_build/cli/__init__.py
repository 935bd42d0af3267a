"""The command line: one file a command, and the only package that prints."""

from mono_build.cli.main import main

__all__ = ["main"]
