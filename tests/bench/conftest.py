"""The bench is a script and not installed: its modules are found beside it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "ci" / "bench"))
