"""The pieces of the vLLM wheel that these tests share with those of the families."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "families"))
