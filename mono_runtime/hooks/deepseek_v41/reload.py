"""What happens to a layer's weights while vLLM loads them, the first time and at every reload.

vLLM calls ``quant_method.process_weights_after_loading(module)`` for each module, when its weights are
there. On gfx942 the kernels' own copies are made then, so that they count as the model's memory when vLLM
sizes its KV cache: of the experts before vLLM's step, which frees what they are made of, of dense
matrices after it. A reload writes into the first copies, because captured graphs hold their addresses.

A reload of vLLM's loads the experts into memory that nobody cleared and fills the checkpoint's part
alone. So the padding is zeroed before vLLM converts it, on both architectures: gfx950's kernels read it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mono_runtime.errors import InvalidValue
from mono_runtime.hooks.deepseek_v41.layer_weights import (
    ATTENTION_LINEARS,
    EXPERT_TENSORS,
    EXPERTS,
    SHARED_LINEARS,
    at,
    take_weights,
)
from mono_runtime.hooks.deepseek_v41.weights import LayerWeights, Layout, Tensor, WeightsMismatch
from mono_runtime.hooks.deepseek_v41.weights_gfx942 import (
    ExpertCopies,
    LinearCopy,
    copy_experts,
    copy_linear,
)

if TYPE_CHECKING:
    import torch

_PROCESS = "process_weights_after_loading"
_FOLLOWED = "_mono_loading"
# Before or after a module's weights are processed; the module is handed over, so that nothing here
# keeps it alive.
_Step = Callable[[Any], None]


class LayerLoading:
    """What one layer's loads leave for the kernels; made by `follow_loading`.

    Attributes:
        layout: what the copies are made for.
        loads: how often the experts were loaded. Whoever took the weights takes them anew when it moves.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.loads = 0
        self._linears: dict[str, LinearCopy] = {}
        self._experts: ExpertCopies | None = None

    @property
    def tensors(self) -> dict[str, Tensor]:
        """gfx942's copies that there are, by the launches' argument names. They keep their addresses."""
        found: dict[str, Tensor] = {}
        for name, copy in self._linears.items():
            found[name], found[f"{name}_s"] = copy.codes, copy.scales
        if self._experts is not None:
            found |= {name: getattr(self._experts, name) for name in EXPERT_TENSORS}
        return found

    def follow(self, layer: object) -> None:
        """Step in where vLLM processes the layer's experts and, for gfx942, its dense matrices."""
        linears = {**SHARED_LINEARS, **(ATTENTION_LINEARS if self.layout.whole else {})}
        modules = {name: at(layer, path) for name, path in linears.items()}
        _follow(at(layer, EXPERTS), _Followed(self, before=self.load_experts))
        if self.layout.gfx942:
            for name, module in modules.items():
                step = functools.partial(self.load_linear, name)
                _follow(module, _Followed(self, after=step))

    def load_linear(self, name: str, module: Any) -> None:
        """Make or renew the copy of a dense matrix that was loaded and processed."""
        with _naming(name, module):
            self._linears[name] = copy_linear(
                module.weight, module.weight_scale, self._linears.get(name)
            )

    def load_experts(self, module: Any) -> None:
        """Clear a reload's padding; for gfx942 make or renew the copies of the experts."""
        w13, w13_s, w2, w2_s = (getattr(module, name) for name in EXPERT_TENSORS.values())
        with _naming("experts", module):
            if self.loads:
                zero_padding(w13, w2, self.layout.inter)
            if self.layout.gfx942:
                inter = self.layout.inter
                self._experts = copy_experts(w13, w13_s, w2, w2_s, inter, self._experts)
        self.loads += 1


def follow_loading(layer: object, layout: Layout) -> LayerLoading:
    """Follow the loads of vLLM's ``layer`` from now on. Called before its weights are loaded, once or more.

    Quant methods may be shared between layers; only the modules of layers that were named here are
    touched. A second call for a layer gives the first one's result.

    Raises:
        WeightsMismatch: the layer has not the modules that the kernels need.
        InvalidValue: the layer is followed already, for another layout.
    """
    try:
        known = loading_of(layer)
        if known is None:
            known = LayerLoading(layout)
            known.follow(layer)
    except AttributeError as error:
        raise WeightsMismatch(
            f"a layer has not the modules whose weights the {layout.arch} kernels read: {error}",
            fix="use a vLLM release that this version names as supported",
        ) from error
    if known.layout != layout:
        raise InvalidValue(
            f"a layer's loads are followed for {known.layout} already, and now for {layout}",
            fix="decide once, when the layer is made, what of it the kernels run",
        )
    return known


def loading_of(layer: object) -> LayerLoading | None:
    """What `follow_loading` gave for this layer, if it was called."""
    followed: _Followed | None = getattr(at(layer, EXPERTS), _FOLLOWED, None)
    return followed.loading if followed is not None else None


def weights_of(layer: object, layout: Layout) -> LayerWeights:
    """The loaded weights of vLLM's ``layer``, checked; on gfx942 the copies that were made at load.

    Raises:
        WeightsMismatch: with everything that is missing or not as the kernels read it.
    """
    loading = loading_of(layer) if layout.gfx942 else None
    return take_weights(layer, layout, loading.tensors if loading else None)


def zero_padding(w13: torch.Tensor, w2: torch.Tensor, inter: int) -> None:
    """Zero the weights beyond width ``inter``, in place, as they are before vLLM's conversion.

    Args:
        w13: gate rows, then up rows [E, 2 P, K / 2], two E2M1 a byte.
        w2: [E, H, P / 2].
        inter: an expert's width on this rank, at most P.
    """
    padded = w13.shape[1] // 2
    for part in (
        w13[:, inter:padded],
        w13[:, padded + inter :],
        w2[:, :, inter // 2 :],
    ):
        if part.numel():
            part.detach().zero_()


@dataclass(frozen=True, slots=True)
class _Followed:
    """What is kept on a module: whose loads it belongs to, and what goes before and after vLLM's step."""

    loading: LayerLoading
    before: _Step | None = None
    after: _Step | None = None


class _Processing:
    """A quant method's ``process_weights_after_loading`` that minds the modules which are followed."""

    def __init__(self, original: Callable[..., Any]) -> None:
        functools.update_wrapper(self, original)
        self._original = original

    def __call__(self, layer: Any, *args: Any, **keywords: Any) -> Any:
        followed: _Followed | None = getattr(layer, _FOLLOWED, None)
        if followed is not None and followed.before is not None:
            followed.before(layer)
        result = self._original(layer, *args, **keywords)
        if followed is not None and followed.after is not None:
            followed.after(layer)
        return result


def _follow(module: Any, followed: _Followed) -> None:
    method = module.quant_method
    present = getattr(method, _PROCESS)
    # Layers may share a method: what is done is looked up on the module, and the method wrapped once.
    if not isinstance(present, _Processing):
        setattr(method, _PROCESS, _Processing(present))
    setattr(module, _FOLLOWED, followed)


@contextmanager
def _naming(name: str, module: Any) -> Iterator[None]:
    """Add to an error which weight of which module it is about."""
    try:
        yield
    except InvalidValue as error:
        if error.where is None:
            error.where = f"{name} of {getattr(module, 'prefix', None) or type(module).__name__}"
        raise
