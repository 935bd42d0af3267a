"""A group from what callers have: nothing, a group, or a process group of torch."""

from __future__ import annotations

import sys
from typing import cast

from mono_runtime.errors import InvalidValue
from mono_runtime.group import Group
from mono_runtime.ranks.single_group import SingleGroup
from mono_runtime.ranks.torch_group import TorchGroup


def as_group(group: object) -> Group:
    """``group`` as a `Group`.

    Args:
        group: None for one rank, a `Group`, or a CPU (gloo) process group of torch.

    Raises:
        InvalidValue: it is something else, or a process group that is not on the CPU.
    """
    if group is None:
        return SingleGroup()
    if callable(getattr(group, "exchange", None)):
        return cast(Group, group)
    # Whoever holds a process group has imported this; importing it here would only cost time.
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and isinstance(group, distributed.ProcessGroup):
        return TorchGroup(group)
    raise InvalidValue(
        f"not a group of ranks: {type(group).__module__}.{type(group).__qualname__}",
        fix="pass None for one rank, a CPU process group of torch (vLLM: get_tp_group().cpu_group), "
        "or a group of mono_runtime.ranks",
    )
