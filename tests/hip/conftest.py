from __future__ import annotations

from collections.abc import Iterator

import pytest
import standin_hip
from standin_hip import FakeDevice, StandIn

from mono_runtime.hip.driver import HipDriver, open_hip


@pytest.fixture
def hip() -> Iterator[StandIn]:
    """The stand-in with two devices: a gfx942 and a gfx950."""
    standin = standin_hip.load()
    standin.reset(
        FakeDevice(),
        FakeDevice(
            "gfx950:sramecc+:xnack-",
            256,
            name="AMD Instinct MI355X",
            memory=288 << 30,
            pci="0001:c5:00",
        ),
    )
    yield standin
    standin.reset()


@pytest.fixture
def driver(hip: StandIn) -> HipDriver:
    return open_hip()
