"""What the tensor-parallel ranks do together: exchange bytes, agree, and share device memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mono_runtime.lazy import lazy_names

if TYPE_CHECKING:
    from mono_runtime.ranks.agreement import LoadedLaunch, Statement, agree, agree_or_fail
    from mono_runtime.ranks.conversion import as_group
    from mono_runtime.ranks.local_group import LocalGroup, local_groups
    from mono_runtime.ranks.peer_memory import PeerMemory
    from mono_runtime.ranks.single_group import SingleGroup
    from mono_runtime.ranks.torch_group import TorchGroup

__all__ = [
    "LoadedLaunch",
    "LocalGroup",
    "PeerMemory",
    "SingleGroup",
    "Statement",
    "TorchGroup",
    "agree",
    "agree_or_fail",
    "as_group",
    "local_groups",
]

_MODULES = {
    "LoadedLaunch": "agreement",
    "LocalGroup": "local_group",
    "PeerMemory": "peer_memory",
    "SingleGroup": "single_group",
    "Statement": "agreement",
    "TorchGroup": "torch_group",
    "agree": "agreement",
    "agree_or_fail": "agreement",
    "as_group": "conversion",
    "local_groups": "local_group",
}
# A server whose ranks agree needs none of the rest.
__getattr__ = lazy_names(
    __name__, {name: (f"{__name__}.{module}", name) for name, module in _MODULES.items()}
)
