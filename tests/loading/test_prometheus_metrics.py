"""The counters in Prometheus's text format, and what happens without its package."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mono_runtime.counters import Counters
from mono_runtime.errors import InvalidValue, PackageMissing
from mono_runtime.metrics import register

EXPOSITION = """\
# HELP mono_runtime_hits_total Launches found in a store.
# TYPE mono_runtime_hits_total counter
mono_runtime_hits_total 1.0
# HELP mono_runtime_misses_total Launches that could not be had.
# TYPE mono_runtime_misses_total counter
mono_runtime_misses_total{reason="missing"} 2.0
# HELP mono_runtime_loads_total Code objects loaded.
# TYPE mono_runtime_loads_total counter
mono_runtime_loads_total 1.0
# HELP mono_runtime_shared_total Code objects found loaded already.
# TYPE mono_runtime_shared_total counter
mono_runtime_shared_total 1.0
# HELP mono_runtime_loaded_bytes_total Bytes of code objects loaded.
# TYPE mono_runtime_loaded_bytes_total counter
mono_runtime_loaded_bytes_total 25680.0
# HELP mono_runtime_loading_seconds_total Seconds spent on loading, summed over loads.
# TYPE mono_runtime_loading_seconds_total counter
mono_runtime_loading_seconds_total 0.5
# HELP mono_runtime_fallbacks_total Misses that the policy answered with another path.
# TYPE mono_runtime_fallbacks_total counter
mono_runtime_fallbacks_total{policy="stock",reason="missing"} 2.0
# HELP mono_runtime_launches_total Launches made.
# TYPE mono_runtime_launches_total counter
mono_runtime_launches_total{family="deepseek_v41",launch="k1"} 5.0
mono_runtime_launches_total{family="deepseek_v41",launch="k2"} 4.0
# HELP mono_runtime_steps_declined_total Parts of steps that a hook left to the engine.
# TYPE mono_runtime_steps_declined_total counter
mono_runtime_steps_declined_total{family="deepseek_v41",reason="49 rows"} 3.0
# HELP mono_runtime_waits_total Launches that waited too long for another rank.
# TYPE mono_runtime_waits_total counter
mono_runtime_waits_total{outcome="reported"} 1.0
"""


def filled() -> Counters:
    counters = Counters()
    counters.hit()
    counters.loaded(25680, 0.5)
    counters.shared()
    for _ in range(2):
        counters.missed("missing")
        counters.fell_back("stock", "missing")
    for _ in range(3):
        counters.step_declined("deepseek_v41", "49 rows")
    counters.waited("reported")
    counters.watch("deepseek_v41", "k1", lambda: 5)
    counters.watch("deepseek_v41", "k2", lambda: 4)
    return counters


def test_the_exposition_text() -> None:
    prometheus = pytest.importorskip("prometheus_client", reason="needs prometheus-client")
    registry = prometheus.CollectorRegistry()
    register(filled().snapshot, registry)
    assert prometheus.generate_latest(registry).decode() == EXPOSITION


def test_the_numbers_are_read_at_each_scrape() -> None:
    prometheus = pytest.importorskip("prometheus_client", reason="needs prometheus-client")
    registry, counters = prometheus.CollectorRegistry(), Counters()
    register(counters.snapshot, registry)
    assert registry.get_sample_value("mono_runtime_hits_total") == 0
    counters.hit()
    assert registry.get_sample_value("mono_runtime_hits_total") == 1


def test_registering_twice_is_refused_and_taking_back_is_possible() -> None:
    prometheus = pytest.importorskip("prometheus_client", reason="needs prometheus-client")
    registry = prometheus.CollectorRegistry()
    collector = register(filled().snapshot, registry)
    with pytest.raises(InvalidValue, match="has the metrics already"):
        register(filled().snapshot, registry)
    registry.unregister(collector)
    register(filled().snapshot, registry)


def test_the_default_registry_is_the_process_own() -> None:
    prometheus = pytest.importorskip("prometheus_client", reason="needs prometheus-client")
    collector = register(filled().snapshot)
    try:
        assert prometheus.REGISTRY.get_sample_value("mono_runtime_loads_total") == 1
    finally:
        prometheus.REGISTRY.unregister(collector)


def test_without_the_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(PackageMissing, match="prometheus_client, which is not installed"):
        register(Counters().snapshot)


def test_importing_the_module_does_not_import_the_package() -> None:
    program = "import sys, mono_runtime.metrics; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
