"""What can stop an emulated launch, named for what happened."""

from __future__ import annotations

from mono_runtime.errors import DriverError


class EmulationError(DriverError):
    """The emulator stopped a launch; the message says where in which kernel."""


class WildAccess(EmulationError):
    """A kernel touched memory outside of every live allocation, of its LDS or of its scratch."""


class NotModelledInstruction(EmulationError):
    """A wave reached an instruction that the emulator has no semantics for."""


class Deadlock(EmulationError):
    """Workgroups wait for something that nobody will do."""


class WrongJump(EmulationError):
    """A wave jumped to where no instruction begins, or ran off the end, or hit ``s_trap``."""
