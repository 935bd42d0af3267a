"""The executor; a test says what it builds, and which layers and metadata a step has."""

from types import SimpleNamespace

from .layers import compile_build


class SpecializedDecode:
    def __init__(self, builds, num_spec=1, first_layer=1):
        for build in builds:
            compile_build(build)
        self.runner = SimpleNamespace(num_spec=num_spec, kda_prefix="kda")
        self.backbone = SimpleNamespace(start_layer=0)
        self.first_layer = first_layer

    def plan(self, width, query=2):
        indices = SimpleNamespace(size=lambda dim: query)
        metadata = {"kda": SimpleNamespace(spec_state_indices_tensor=indices)}
        return SimpleNamespace(
            width=width, attn_metadata=metadata, kernels={self.first_layer: None}
        )
