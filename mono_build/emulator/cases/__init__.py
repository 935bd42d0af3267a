"""Launches to execute: inputs made from a seed, and what must come out of them."""
