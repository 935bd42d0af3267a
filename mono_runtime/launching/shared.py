"""What launches of equal argument lists have in common, made once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

# Many times what a server's families have.
_KEPT = 64


class OncePer(Generic[T]):
    """A function of immutable objects that is called once for the very same ones.

    They are told apart by identity: `mono_runtime.launch_plan` gives equal argument lists as one
    object, and comparing two lists, or hashing one, takes as long as what is made of them. Equal
    objects that are not the same cost a further call and nothing else. Safe to use from several threads.
    """

    def __init__(self, make: Callable[..., T]) -> None:
        self._make = make
        # With the objects themselves, so that no other object gets their identity.
        self._made: dict[tuple[int, ...], tuple[tuple[object, ...], T]] = {}

    def __call__(self, *objects: object) -> T:
        identity = tuple(map(id, objects))
        known = self._made.get(identity)
        if known is None:
            known = (objects, self._make(*objects))
            if len(self._made) >= _KEPT:
                self._made.clear()
            self._made[identity] = known
        return known[1]
