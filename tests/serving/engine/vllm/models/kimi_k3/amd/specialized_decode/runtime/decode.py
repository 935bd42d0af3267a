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

        self.kda = []
        self._kv = None

    def prepare_kv(self, state_len=None):
        """Binds a cache whose convolution state has ``state_len`` entries; None: there is none yet."""
        state = SimpleNamespace(size=lambda dim: state_len)
        caches = [] if state_len is None else [state, None]
        # As of a layer whose cache is not bound, which has nothing to take apart.
        self.kda = [SimpleNamespace(caches=lambda: (caches[0], caches[1]))]
        self._kv = state_len

    def plan(self, width, query=2):
        indices = SimpleNamespace(size=lambda dim: query)
        metadata = {"kda": SimpleNamespace(spec_state_indices_tensor=indices)}
        return SimpleNamespace(
            width=width, attn_metadata=metadata, kernels={self.first_layer: None}
        )
