"""Widths against vLLM's own capture list and dispatcher: every batch of a small server is dispatched."""

from __future__ import annotations

import enum
import itertools
import sys
import types
from collections import defaultdict
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from wheel_code import taken

from mono_runtime.families.base import Deployment
from mono_runtime.families.deepseek_v41 import KEYS
from mono_runtime.families.widths import Serving, decode_widths

pytestmark = pytest.mark.network
# More rows than any batch below has.
NO_LIMIT = 10_000


@dataclass(frozen=True)
class Server:
    """What the tests start vLLM's code with."""

    mode: str
    drafts: int
    seqs: int
    batched: int = 8192
    sizes: tuple[int, ...] = ()
    ceiling: int | None = None
    performance: str = "balanced"
    adaptive: bool = False


@pytest.fixture(scope="module")
def modes() -> Any:
    (found,) = taken("config/compilation.py", {"CUDAGraphMode": ()}, {"enum": enum})
    return found


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one thing that the capture list asks of the platform: it is no data-centre Blackwell."""
    for name in ("vllm", "vllm.platforms"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    here = SimpleNamespace(is_device_capability_family=lambda family: False)
    monkeypatch.setattr(sys.modules["vllm.platforms"], "current_platform", here, raising=False)


def engine_config(server: Server, modes: Any) -> Any:
    """A configuration with what vLLM's functions read of it, its graph sizes computed by vLLM."""
    logger = SimpleNamespace(warning=lambda *_: None, warning_once=lambda *_: None)
    (config_class,) = taken(
        "config/vllm.py",
        {"VllmConfig": ("_set_cudagraph_sizes",)},
        {"CUDAGraphMode": modes, "logger": logger},
    )
    config = config_class()
    config.model_config = SimpleNamespace(enforce_eager=False)
    config.scheduler_config = SimpleNamespace(
        max_num_seqs=server.seqs, max_num_batched_tokens=server.batched
    )
    config.compilation_config = SimpleNamespace(
        cudagraph_mode=modes[server.mode],
        cudagraph_capture_sizes=list(server.sizes) or None,
        max_cudagraph_capture_size=server.ceiling,
        compile_sizes=None,
        post_init_cudagraph_sizes=lambda: None,
    )
    config.speculative_config = None
    config.num_speculative_tokens = server.drafts
    config.uniform_decode_query_len = 1 + server.drafts
    config.performance_mode = server.performance
    config.parallel_config = SimpleNamespace(tensor_parallel_size=4)
    config.cache_config = SimpleNamespace(use_kda_recoverssm=False)
    config._set_cudagraph_sizes()
    return config


def manager(config: Any, query: int, modes: Any, *, adaptive: bool = False) -> Any:
    """vLLM's graph manager of this configuration, as after its graphs were captured."""
    given = {
        "dataclass": dataclass,
        "CUDAGraphMode": modes,
        "defaultdict": defaultdict,
        "product": itertools.product,
        "groupby": itertools.groupby,
        "replace": replace,
        "round_up": lambda n, m: -(-n // m) * m,
    }
    cls = taken(
        "v1/worker/gpu/cudagraph_utils.py",
        {
            "CudaGraphManager": (
                "_init_candidates",
                "_maybe_ubatch_twin",
                "_resolve_effective_loras",
                "dispatch",
            ),
            "BatchExecutionDescriptor": (),
            "_is_compatible": (),
        },
        given,
    )[0]
    made = cls()
    made.vllm_config, made.compilation_config = config, config.compilation_config
    made.cudagraph_mode, made.decode_query_len = config.compilation_config.cudagraph_mode, query
    made.max_num_reqs, made.varlen_decode = config.scheduler_config.max_num_seqs, adaptive
    made.ubatch_runner, made.lora_capture_cases, made._lora_dispatch_map = None, [0], {}
    made._candidates, made._capture_descs, made._graphs_captured = {}, {}, True
    made._init_candidates()
    return made


def batches(seqs: int, query: int, *, whole: bool) -> Any:
    """(requests, rows, rows of each if all have as many) of every decode batch there can be."""
    for requests in range(1, seqs + 1):
        for rows in range(requests, requests * query + 1):
            uniform = rows // requests if rows % requests == 0 else None
            if whole:
                if uniform == query:
                    yield requests, rows, query
                continue
            if uniform is not None:
                yield requests, rows, uniform
            if requests > 1 and requests < rows < requests * query:
                yield requests, rows, None


def dispatched(made: Any, seqs: int, query: int, batched: int, *, whole: bool) -> list[int]:
    """The widths at which the mono kernels run: of full graphs, and of eager steps."""
    found = set()
    for requests, rows, uniform in batches(seqs, query, whole=whole):
        if rows > batched:
            continue
        longest = uniform or min(query, rows - requests + 1)
        graph = made.dispatch(requests, rows, uniform, 0, max_query_len=longest)
        if graph.cg_mode.name != "PIECEWISE":
            found.add(graph.num_tokens)
    return sorted(found)


def ours(server: Server, query: int | None = None) -> list[int]:
    settings: dict[str, Any] = {
        "speculative_tokens": server.drafts,
        "max_num_seqs": server.seqs,
        "max_num_batched_tokens": server.batched,
        "capture_sizes": server.sizes,
        "max_capture_size": server.ceiling or 0,
        "performance_mode": server.performance,
        "adaptive_verification": server.adaptive,
        "cudagraph_mode": server.mode,
    }
    deployment: Deployment = KEYS.deployment("gfx950", 4, settings)
    return list(decode_widths(Serving.of(deployment), NO_LIMIT, query))


MODES = ("FULL_AND_PIECEWISE", "FULL_DECODE_ONLY", "PIECEWISE")
SERVERS = [
    Server(mode, drafts, seqs)
    for mode in MODES
    for drafts in (0, 1, 3, 5, 6)
    for seqs in (1, 3, 8, 20)
]
SERVERS += [
    Server(mode, drafts, seqs, **more)
    for mode in MODES
    for drafts, seqs in ((0, 20), (5, 4), (5, 9))
    for more in (
        {"sizes": (6, 10, 48)},
        {"sizes": (4,)},
        {"sizes": (16, 32)},
        {"ceiling": 12},
        {"ceiling": 24},
        {"batched": 20},
        {"performance": "interactivity"},
    )
]


@pytest.mark.usefixtures("platform")
@pytest.mark.parametrize("server", SERVERS, ids=str)
def test_a_server_runs_steps_of_the_planned_widths_and_of_no_others(
    server: Server, modes: Any
) -> None:
    query = 1 + server.drafts
    made = manager(engine_config(server, modes), query, modes)
    assert ours(server) == dispatched(made, server.seqs, query, server.batched, whole=False)


@pytest.mark.usefixtures("platform")
@pytest.mark.parametrize("server", [s for s in SERVERS if s.drafts], ids=str)
def test_a_draft_runs_steps_of_the_planned_widths_and_of_no_others(
    server: Server, modes: Any
) -> None:
    # The speculator's graphs: full ones for decode steps, or none (dflash/speculator.py).
    config = engine_config(server, modes)
    full = config.compilation_config.cudagraph_mode.decode_mode() == modes.FULL
    config.compilation_config.cudagraph_mode = modes.FULL_DECODE_ONLY if full else modes.NONE
    made = manager(config, server.drafts, modes)
    expected = dispatched(made, server.seqs, server.drafts, server.batched, whole=True)
    assert ours(server, query=server.drafts) == expected


@pytest.mark.usefixtures("platform")
@pytest.mark.parametrize("seqs", [1, 4, 9])
def test_adaptive_verification_pads_to_any_captured_size(seqs: int, modes: Any) -> None:
    server = Server("FULL_AND_PIECEWISE", 5, seqs, adaptive=True)
    made = manager(engine_config(server, modes), 6, modes, adaptive=True)
    assert ours(server) == dispatched(made, seqs, 6, server.batched, whole=False)


def test_no_graphs_leave_every_width(modes: Any) -> None:
    server = Server("NONE", 2, 5)
    assert ours(server) == list(range(1, 16))
