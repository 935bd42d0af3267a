"""vLLM's own builders and step decisions, changed so that its runners launch what a store holds."""
