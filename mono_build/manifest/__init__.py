"""Manifests: the YAML that says what to build, and the plan that follows from it."""

from mono_build.manifest.load import default_manifest, load_manifests, ready_manifests
from mono_build.manifest.model import Entry, Manifest, Selector, Variant
from mono_build.manifest.planning import manifest_for, plan_for
from mono_build.plan import BuildPlan, Pins, Selection

__all__ = [
    "BuildPlan",
    "Entry",
    "Manifest",
    "Pins",
    "Selection",
    "Selector",
    "Variant",
    "default_manifest",
    "load_manifests",
    "manifest_for",
    "plan_for",
    "ready_manifests",
]
