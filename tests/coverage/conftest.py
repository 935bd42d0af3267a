"""What these tests share with those of families (pieces of the vLLM wheel), stores (launches) and docs (pages)."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "families"), str(TESTS / "store"), str(TESTS / "docs")]
