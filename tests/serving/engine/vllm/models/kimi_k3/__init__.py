"""Part of the duck-typed engine; see `vllm`."""
