from __future__ import annotations

import pytest
from launch_kit import RecordingDriver


@pytest.fixture
def recorder() -> RecordingDriver:
    return RecordingDriver()
