"""What vLLM is changed by: its mono kernels, served from a store instead of compiled."""
