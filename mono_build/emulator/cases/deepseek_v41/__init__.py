"""Cases of DeepSeek-V4.1's launches (vLLM 0.33.0): K1, K2, both in turn, and the FFN launch."""
