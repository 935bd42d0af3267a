"""What the tensor-parallel ranks do together: exchange bytes, agree, and share device memory."""

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
