"""Part of the path that the kernels import their helpers by."""
