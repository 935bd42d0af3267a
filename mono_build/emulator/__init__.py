"""Runs code objects for CDNA3 and CDNA4 on the CPU: an ISA model, not a model of the hardware's timing."""
