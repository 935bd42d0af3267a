"""``python -m mono_build`` is the same as ``mono-build``."""

from mono_build.cli import main

if __name__ == "__main__":
    main()
