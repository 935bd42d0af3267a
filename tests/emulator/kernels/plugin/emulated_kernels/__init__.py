"""FlyDSL kernels of our own, each for something that an emulator must get right."""
