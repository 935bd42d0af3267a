"""What a server and a builder share: the words, formats and reading rules of a mono-build store."""

__version__ = "0.1.0"
