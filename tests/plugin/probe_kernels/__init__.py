"""Small FlyDSL kernels of our own, each for one thing that a launch can do."""
