"""An engine with the modules, names and calls that the hooks need of vLLM 0.33.0, and nothing behind them."""

__version__ = "0.33.0"
