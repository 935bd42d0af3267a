"""Classes of instructions, for counting."""

from __future__ import annotations

import re

from mono_build.emulator.blocks import memory_class
from mono_build.emulator.instruction import Instruction

# In the order in which they are shown.
CLASSES = (
    "vector",
    "packed",
    "conversion",
    "transcendental",
    "lanes",
    "matrix",
    "lds load",
    "lds store",
    "load",
    "store",
    "atomic",
    "scalar",
    "scalar load",
    "branch",
    "wait",
)
_TRANSCENDENTAL = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos|div_)")
_LANES = re.compile(
    r"v_(readlane|writelane|readfirstlane|permlane|mov_b32_dpp)|ds_(bpermute|permute|swizzle)"
)
_WAITS = ("s_waitcnt", "s_nop", "s_barrier", "s_sleep")
_MATRIX = re.compile(r"v_s?mfmac?_")
_SHAPE = re.compile(r"_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?(?=_|$)")


def instruction_class(instruction: Instruction) -> str:
    """One of `CLASSES`.

    Moves through DPP and SDWA are ``lanes``; their arithmetic forms count by what they compute.
    """
    name, encoding = instruction.mnemonic, instruction.encoding
    if _MATRIX.match(name):
        return "matrix"
    if _LANES.match(name) or (name == "v_mov_b32" and encoding.endswith(("DPP16", "SDWA", "DPP"))):
        return "lanes"
    if name.startswith("v_"):
        return _vector_class(name)
    memory = memory_class(instruction)
    if memory:
        return memory
    if encoding == "SMEM":
        return "scalar load"
    if name.startswith(_WAITS):
        return "wait"
    return "branch" if encoding == "SOPP" else "scalar"


def _vector_class(name: str) -> str:
    if name.startswith("v_pk_"):
        return "packed"
    if name.startswith("v_cvt_"):
        return "conversion"
    return "transcendental" if _TRANSCENDENTAL.match(name) else "vector"


def multiply_adds(instruction: Instruction) -> int:
    """How many products a matrix instruction sums: rows, columns, depth and blocks of its name; else 0."""
    if not _MATRIX.match(instruction.mnemonic):
        return 0
    shape = _SHAPE.search(instruction.mnemonic)
    if shape is None:
        return 0
    rows, columns, depth, blocks = (int(n or 1) for n in shape.groups())
    return rows * columns * depth * blocks
