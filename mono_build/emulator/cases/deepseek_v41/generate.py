"""From a launch key to its case."""

from __future__ import annotations

from dataclasses import replace

from mono_build.emulator.cases.case import Case, NoCase
from mono_build.emulator.cases.deepseek_v41 import ffn, k1, k2, key_list
from mono_build.emulator.cases.deepseek_v41.build import Build, Target
from mono_runtime.launch_key import LaunchKey

# Launches of a whole layer's build key.
LAUNCHES = {"k1": k1.case, "k2": k2.case, "ffn": ffn.case}
# The epoch and the byte in scratch and peer memory that seeds alternate between: a first step's, and
# one on what might be left of others.
STATES = ((0, 0x00), (7, 0x7F))


def case(key: LaunchKey, seed: int) -> Case:
    """The case of one launch.

    Odd seeds begin with zeros as vLLM does, even ones at an odd epoch on NaN. Every two seeds the first
    request is at the next edge, so that narrow steps come to all of them.

    Raises:
        NoCase: the launch has no case (a build with a timeline, an unknown launch).
    """
    edge = max(seed - 1, 0) // len(STATES)
    if key.launch == key_list.LAUNCH:
        return key_list.case(key.arch, int(key.values["tokens"]), seed, edge)
    if key.launch not in LAUNCHES:
        known = ", ".join([*LAUNCHES, key_list.LAUNCH])
        raise NoCase(f"no case for launch {key.launch!r}", fix=f"known: {known}")
    build = Build(**key.values)  # type: ignore[arg-type]
    if build.timeline:
        raise NoCase("no case for a build with a timeline", fix="choose timeline=false")
    epoch, stale = STATES[(seed + 1) % 2]
    target = replace(Target(build, key.arch), epoch=epoch, stale=stale, edge=edge)
    return LAUNCHES[key.launch](target, seed)
