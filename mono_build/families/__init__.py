"""The model families whose launches can be built; others register from outside by entry point."""
