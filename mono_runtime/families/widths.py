"""Step widths: the row counts at which vLLM runs decode steps, from how a server is started.

The rules are those of vLLM 0.33.0: the capture list of ``VllmConfig._set_cudagraph_sizes``
(config/vllm.py), the rounding to whole requests of ``adjust_cudagraph_sizes_for_spec_decode``
(config/compilation.py) and of ``CudaGraphManager._init_candidates`` (v1/worker/gpu/cudagraph_utils.py).
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
            "eager",
            bool,
            "Decode steps may run outside of graphs (--enforce-eager, or FULL_DECODE_ONLY graphs with"
            " drafts): every width is built.",
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
    eager: bool

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
            eager=bool(settings["eager"]),
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
    """The widths up to ``limit`` rows at which decode steps of ``query`` rows a request run.

    ``query`` is the target's unless given (a draft has its own). Steps above the largest graph are
    eager, of any width; those below it are padded to a graph or run vLLM's own path.
    """
    rows = query or serving.query
    most = min(limit, serving.sequences * rows, serving.batched_tokens)
    if serving.eager:
        return tuple(range(rows if query else 1, most + 1, query or 1))
    sizes = capture_sizes(serving)
    largest = sizes[-1] if sizes else 0
    step = 1 if serving.varying and query is None else rows
    captured = {-(-s // step) * step for s in sizes}
    captured = {s for s in captured if s <= largest} or {step}
    eager = range(largest + 1, most + 1) if query is None else range(rows, most + 1, rows)
    beyond = {s for s in eager if s > largest}
    return tuple(sorted(s for s in captured | beyond if s <= most))
