"""HIP as a driver: finding ``libamdhip64``, its functions by ctypes, and `Driver` over them."""
