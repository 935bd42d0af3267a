"""Builds launches when a step first needs them, as the runner of the real engine does."""

from .layer import MonoBuild, build_mono_k1, build_mono_k2

cache_calls = []


def _ensure_writable_flydsl_cache():
    cache_calls.append(1)


class Runner:
    def __init__(self, tp):
        _ensure_writable_flydsl_cache()
        self.tp = tp
        self._kernels = {}

    def kernels(self, tokens, ratio, **variant):
        key = (tokens, ratio, *variant.items())
        if key not in self._kernels:
            build = MonoBuild(tokens, self.tp, ratio, **variant)
            self._kernels[key] = (build_mono_k1(build), build_mono_k2(build))
        return self._kernels[key]
