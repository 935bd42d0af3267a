"""The kernels of the stand-in family: launches that behave and misbehave on demand."""
