"""The counters as Prometheus metrics, when `prometheus_client` is installed.

Nothing is registered by itself. Metrics made by a collector, as these are, belong to the process that
registers them: in the multiprocess mode of `prometheus_client` (``PROMETHEUS_MULTIPROC_DIR``) they
are served by no other process, and not by the ``/metrics`` of an engine whose launches run in worker
processes. Register there with a registry of the worker's own and serve that, or log the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from mono_runtime.counters import Snapshot
from mono_runtime.errors import InvalidValue, PackageMissing

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily
    from prometheus_client.registry import Collector, CollectorRegistry

_Rows = list[tuple[tuple[str, ...], float]]
# Prometheus adds "_total" to the name of a counter.
_FAMILIES: tuple[tuple[str, str, tuple[str, ...], Callable[[Snapshot], _Rows]], ...] = (
    ("hits", "Launches found in a store.", (), lambda s: [((), s["hits"])]),
    (
        "misses",
        "Launches that could not be had.",
        ("reason",),
        lambda s: [((reason,), n) for reason, n in s["misses"].items()],
    ),
    ("loads", "Code objects loaded.", (), lambda s: [((), s["loads"])]),
    ("shared", "Code objects found loaded already.", (), lambda s: [((), s["shared"])]),
    ("loaded_bytes", "Bytes of code objects loaded.", (), lambda s: [((), s["bytes_loaded"])]),
    (
        "loading_seconds",
        "Seconds spent on loading, summed over loads.",
        (),
        lambda s: [((), s["seconds_loading"])],
    ),
    (
        "fallbacks",
        "Misses that the policy answered with another path.",
        ("policy", "reason"),
        lambda s: _pairs(s["fallbacks"]),
    ),
    ("launches", "Launches made.", ("family", "launch"), lambda s: _pairs(s["launches"])),
    (
        "steps_declined",
        "Parts of steps that a hook left to the engine.",
        ("family", "reason"),
        lambda s: _pairs(s["steps_declined"]),
    ),
    (
        "waits",
        "Launches that waited too long for another rank.",
        ("outcome",),
        lambda s: [((outcome,), n) for outcome, n in s["waits"].items()],
    ),
)


def register(
    source: Callable[[], Snapshot], registry: CollectorRegistry | None = None
) -> Collector:
    """Add the counters to ``registry`` as ``mono_runtime_..._total``; they are read at each scrape.

    Args:
        source: gives the numbers, such as `Counters.snapshot`.
        registry: by default the process's own, `prometheus_client.REGISTRY`.

    Returns:
        The collector, which ``registry.unregister`` takes.

    Raises:
        PackageMissing: `prometheus_client` is not installed.
        InvalidValue: the registry has these metrics already.
    """
    try:
        from prometheus_client import REGISTRY
        from prometheus_client.registry import Collector
    except ImportError as error:
        raise PackageMissing(
            "metrics need the Python package prometheus_client, which is not installed",
            fix="install prometheus_client, or read the counters' snapshot",
        ) from error

    class Counts(Collector):
        """Reads ``source`` when it is scraped."""

        def describe(self) -> Iterator[CounterMetricFamily]:
            return _families(None)

        def collect(self) -> Iterator[CounterMetricFamily]:
            return _families(source())

    collector = Counts()
    try:
        (REGISTRY if registry is None else registry).register(collector)
    except ValueError as error:
        raise InvalidValue(
            f"this registry has the metrics already: {error}",
            fix="register once a process, or give each store a registry of its own",
        ) from error
    return collector


def _families(snapshot: Snapshot | None) -> Iterator[CounterMetricFamily]:
    from prometheus_client.core import CounterMetricFamily

    for name, help_text, labels, rows in _FAMILIES:
        family = CounterMetricFamily(f"mono_runtime_{name}", help_text, labels=labels)
        for values, count in rows(snapshot) if snapshot is not None else ():
            family.add_metric(values, count)
        yield family


def _pairs(counts: dict[str, dict[str, int]]) -> _Rows:
    return [((outer, name), n) for outer, inner in counts.items() for name, n in inner.items()]
