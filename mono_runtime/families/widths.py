"""Step widths: the row counts at which vLLM runs decode steps, from how a server is started.

The rules are those of vLLM 0.33.0: the capture list of ``VllmConfig._set_cudagraph_sizes``
(config/vllm.py), the rounding to whole requests of ``adjust_cudagraph_sizes_for_spec_decode``
(config/compilation.py) and of ``CudaGraphManager._init_candidates`` (v1/worker/gpu/cudagraph_utils.py),
and which steps find a graph: ``CudaGraphManager.dispatch`` there.
"""

from __future__ import annotations

from dataclasses import dataclass

from mono_runtime.families.base import Deployment
from mono_runtime.families.fields import Field

# vLLM's ceiling for graph sizes on everything but data-centre Blackwell (config/vllm.py).
DEFAULT_CEILING = 512
# vLLM's default for GPUs with at least 70 GiB, as an API server (engine/arg_utils.py).
DEFAULT_SEQUENCES = 1024
DEFAULT_BATCHED_TOKENS = 8192

# vLLM's ``CUDAGraphMode``: what decode steps and what other steps are captured as.
FULL_AND_PIECEWISE = "FULL_AND_PIECEWISE"
FULL_DECODE_ONLY = "FULL_DECODE_ONLY"
PIECEWISE = "PIECEWISE"
NONE = "NONE"
GRAPH_MODES = (FULL_AND_PIECEWISE, FULL_DECODE_ONLY, PIECEWISE, NONE)


def graph_fields(drafts: int, most: int) -> tuple[Field, ...]:
    """The deployment fields that decide widths; ``drafts`` is the default, ``most`` the largest legal count."""
    return (
        Field(
            "speculative_tokens",
            int,
            "Draft tokens a request verifies in a step (num_speculative_tokens; 0: none).",
            default=drafts,
            minimum=0,
            maximum=most,
        ),
        Field(
            "max_num_seqs",
            int,
            "Requests a step can hold (--max-num-seqs).",
            default=DEFAULT_SEQUENCES,
            minimum=1,
        ),
        Field(
            "max_num_batched_tokens",
            int,
            "Rows a step can hold (--max-num-batched-tokens).",
            default=DEFAULT_BATCHED_TOKENS,
            minimum=1,
        ),
        Field(
            "capture_sizes",
            int,
            "The server's own list of graph sizes (cudagraph_capture_sizes); empty: vLLM's list.",
            minimum=1,
            many=True,
        ),
        Field(
            "max_capture_size",
            int,
            "The server's largest graph size (max_cudagraph_capture_size); 0: vLLM's own.",
            default=0,
            minimum=0,
        ),
        Field(
            "performance_mode",
            str,
            "vLLM's --performance-mode; interactivity captures every size up to 32.",
            default="balanced",
            choices=("balanced", "interactivity", "throughput"),
        ),
        Field(
            "adaptive_verification",
            bool,
            "Requests verify a varying number of drafts, so widths are no multiples of it.",
            default=False,
        ),
        Field(
            "cudagraph_mode",
            str,
            "The graphs that the server ends up with. A decode step that finds none runs eagerly, in any"
            " width; a piecewise graph runs the engine's own path.",
            default=FULL_AND_PIECEWISE,
            choices=GRAPH_MODES,
        ),
        Field(
            "eager",
            bool,
            "Every decode step may be eager (--enforce-eager), so every width is built, whatever"
            " cudagraph_mode says.",
            default=False,
        ),
    )


@dataclass(frozen=True, slots=True)
class Serving:
    """The part of a deployment that decides widths; counts are requests or rows."""

    drafts: int
    sequences: int
    batched_tokens: int
    sizes: tuple[int, ...]
    ceiling: int
    interactivity: bool
    varying: bool
    mode: str

    @staticmethod
    def of(deployment: Deployment) -> Serving:
        """The settings that `graph_fields` describes."""
        settings = deployment.settings
        return Serving(
            drafts=deployment.integer("speculative_tokens"),
            sequences=deployment.integer("max_num_seqs"),
            batched_tokens=deployment.integer("max_num_batched_tokens"),
            sizes=deployment.integers("capture_sizes"),
            ceiling=deployment.integer("max_capture_size"),
            interactivity=settings["performance_mode"] == "interactivity",
            varying=bool(settings["adaptive_verification"]),
            mode=NONE if settings["eager"] else str(settings["cudagraph_mode"]),
        )

    @property
    def query(self) -> int:
        """Rows a request has in a verifying step: the sampled token and the drafts."""
        return 1 + self.drafts


def capture_sizes(serving: Serving) -> tuple[int, ...]:
    """The sizes that vLLM captures graphs for, before they are rounded to whole requests."""
    if serving.sizes:
        return tuple(s for s in serving.sizes if s <= serving.batched_tokens)
    ceiling = serving.ceiling
    whole: list[int] = []
    if not ceiling:
        ceiling = min(serving.sequences * serving.query * 2, DEFAULT_CEILING)
        whole = [n * serving.query for n in _request_counts(serving.sequences, serving.query)]
    most = min(ceiling, serving.batched_tokens)
    sizes = set(range(1, min(most, 32) + 1)) if serving.interactivity else {1, 2, 4}
    sizes |= {*range(8, min(most + 1, 256), 8), *range(256, most + 1, 16)}
    if serving.batched_tokens <= most:
        sizes.add(serving.batched_tokens)
    sizes |= set(whole)
    return tuple(sorted(s for s in sizes if s <= most))


def _request_counts(sequences: int, query: int) -> list[int]:
    if query == 1:
        return [sequences]
    most = min(sequences, DEFAULT_CEILING)
    few = [n for n in (1, 2, 4) if n <= most]
    return [*few, *range(8, min(most + 1, 256), 8), *range(256, most + 1, 16), most]


def decode_widths(serving: Serving, limit: int, query: int | None = None) -> tuple[int, ...]:
    """The widths up to ``limit`` rows at which decode steps run the launches.

    Args:
        query: rows of a request of a draft that always drafts for whole requests; None for the target,
            whose requests may have fewer rows than they can have.

    A step that finds a full graph is padded to it. One that finds a piecewise graph runs the engine's own
    path. Any other is eager and has the width that its requests add up to.
    """
    rows = query or serving.query
    most = min(limit, serving.sequences * rows, serving.batched_tokens)
    eager = range(rows, most + 1, rows) if query else range(1, most + 1)
    if serving.mode == NONE or (query and serving.mode == PIECEWISE):
        return tuple(eager)
    if not query and serving.mode == FULL_DECODE_ONLY and serving.drafts:
        # Only steps in which every request verifies all its drafts have a graph.
        return tuple(eager)
    sizes = capture_sizes(serving)
    largest = sizes[-1] if sizes else 0
    captured: set[int] = set()
    if serving.mode != PIECEWISE:
        step = 1 if serving.varying and query is None else rows
        captured = {-(-s // step) * step for s in sizes}
        captured = {s for s in captured if s <= min(largest, serving.sequences * rows)}
    # Piecewise graphs cover what the full ones leave, except for a draft, which has full ones alone.
    piecewise = not query and serving.mode != FULL_DECODE_ONLY
    covered = largest if piecewise else max(captured, default=0)
    return tuple(sorted({s for s in captured if s <= most} | {s for s in eager if s > covered}))
