"""DeepSeek-V4.1's decode hook: vLLM's layers run prebuilt launches where FlyDSL is not installed."""
