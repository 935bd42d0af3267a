"""The figures of the build side: what is measured, one part a module."""

from __future__ import annotations
