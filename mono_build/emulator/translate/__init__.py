"""Instructions to C: one emitter for each instruction, grouped by class."""
