"""What can stop a build, named for what the operator does next; exit codes as the CLI documents them."""

from __future__ import annotations

from collections.abc import Sequence

from mono_runtime.errors import MonoError

# The exit code of a command that Ctrl-C or SIGTERM ended: 128 and SIGINT's number, as shells count.
INTERRUPTED = 130


class UsageError(MonoError):
    """The command line or the environment asks for something that cannot be meant."""

    exit_code = 2


class ManifestError(UsageError):
    """One or more problems in manifests; ``problems`` holds a rendered line for each."""

    def __init__(self, problems: Sequence[str], *, fix: str | None = None) -> None:
        count = len(problems)
        head = "1 problem" if count == 1 else f"{count} problems"
        super().__init__("\n".join([f"{head} in the manifest", *problems]), fix=fix)
        self.problems = tuple(problems)

    def __reduce__(self) -> tuple[object, ...]:
        return (ManifestError, (self.problems,))


class NotFound(MonoError):
    """Something that was named is not there."""

    exit_code = 3


class ToolchainError(MonoError):
    """FlyDSL, a linker, kernel sources or the file system cannot be used as they are."""

    exit_code = 4


class BuildFailed(MonoError):
    """At least one launch could not be built."""

    exit_code = 1


class LaunchError(MonoError):
    """One launch could not be built: FlyDSL refused it, or its result may not be shipped.

    ``kind`` is a stable word for reports: ``compile``, ``extract``, ``residency``, ``store`` ...
    """

    kind = "compile"


class ExtractionError(LaunchError):
    """The lowered launch does something that the launch plan cannot express."""

    kind = "extract"


class ResidencyError(LaunchError):
    """A persistent grid would not be resident at once on the target, so it would deadlock."""

    kind = "residency"


class ObjectMismatch(LaunchError):
    """The ELF contradicts the launch plan or the target."""

    kind = "object"
