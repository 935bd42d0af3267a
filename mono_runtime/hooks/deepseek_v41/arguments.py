"""Which value each argument of a launch gets: by name, from the launch plan.

The kernels read without bounds, so nothing may be in another's place, and nothing may be left to chance:
a plan that names an argument which this release has no value for, or does not name one that it has, is
refused when its launch is first met.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from mono_runtime.errors import ArgumentMismatch
from mono_runtime.hooks.deepseek_v41.weights import HEAD_DIM
from mono_runtime.launching.values import ADDRESSES

if TYPE_CHECKING:
    from mono_runtime.launching.launch import Launch

# Takes the values that move, in the order of the names that were offered, and the raw stream.
Run = Callable[[Sequence[int], int], None]

# Moving values in the runner's order. Numbers among them are counts; all others are addresses.
STEP = ("pos", "slot", "swa_idx", "swa_lens", "t2r")
CACHES = (
    *("swa", "swa_stride", "swa_block"),
    *("comp", "comp_stride", "comp_block", "topk"),
)
TABLE = ("comp_bt", "bt_stride")
INPUTS = ("pend", "res_in", "post_in", "comb_in", "pre_in")
FFN_INPUTS = ("part", *INPUTS[1:])
OUTPUTS = ("out", "res_out", "post_out", "comb_out", "pre_out")

K1, K2, FFN, KEY_LIST = "k1", "k2", "ffn", "keylist"
OFFERED: Mapping[str, tuple[str, ...]] = {
    K1: (*INPUTS, *STEP, *TABLE, *CACHES),
    KEY_LIST: (*STEP, *TABLE, *CACHES),
    K2: (*OUTPUTS, *STEP, *TABLE, *CACHES),
    FFN: (*FFN_INPUTS, *OUTPUTS),
}
# What a launch has no use for, although the others of its layer do.
_UNREAD: Mapping[str, frozenset[str]] = {
    K1: frozenset(("comp", "comp_stride")),
    KEY_LIST: frozenset(("swa", "swa_stride", "swa_block", "comp", "comp_stride")),
    K2: frozenset(),
    FFN: frozenset(),
}
_NUMBERS = frozenset(
    (
        *("swa_stride", "swa_block", "comp_stride", "comp_block", "bt_stride"),
        *("ratio", "rank", "qk_scale", "tl"),
    )
)

# The softmax is of powers of two: 1 / sqrt(512) times log2(e), as the bits of a float32.
QK_SCALE: int = struct.unpack("<i", struct.pack("<f", HEAD_DIM**-0.5 * math.log2(math.e)))[0]


def bind(launch: Launch, fixed: Mapping[str, object]) -> Run:
    """``launch`` with everything fixed that stays, as a call of what `OFFERED` names.

    Args:
        launch: one of `OFFERED`.
        fixed: values by argument; tensors stand for their addresses, and stay alive with the result.

    Raises:
        ArgumentMismatch: the plan and the values do not name the same arguments, or one has a type that
            cannot hold its value; all are listed.
    """
    name = launch.key.launch
    offered = OFFERED[name]
    moving = set(offered) - _UNREAD[name]
    _require_named(launch, {*fixed, *moving})
    call = launch.bind(**fixed)
    places = [offered.index(a.name) for a in call.arguments]
    pick = itemgetter(*places)

    def run(values: Sequence[int], stream: int) -> None:
        call(*pick(values), stream=stream)

    return run


def _require_named(launch: Launch, given: Iterable[str]) -> None:
    known, wanted = {*given}, {a.name for a in launch.arguments}
    problems = [
        f"the launch takes {n!r}, which this release has no value for"
        for n in sorted(wanted - known)
    ]
    problems += [f"the launch does not take {n!r}" for n in sorted(known - wanted)]
    problems += [
        f"{a.name!r} is an address and the launch takes it as {a.type}"
        for a in launch.arguments
        if a.name not in _NUMBERS and a.type not in ADDRESSES
    ]
    if problems:
        raise ArgumentMismatch(
            "the launch's arguments are not those that this release passes:\n    "
            + "\n    ".join(problems),
            where=launch.key,
            fix="use a store that was built from the vLLM release which this release of mono-build describes",
        )
