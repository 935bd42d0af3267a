"""From a launch key to its case."""

import pytest
import torch

from mono_build.emulator.cases.case import NoCase
from mono_build.emulator.cases.deepseek_v41.generate import case
from mono_runtime.launch_key import LaunchKey

BUILD = {
    "tokens": 1,
    "tp": 4,
    "ratio": 0,
    "fold": False,
    "index": False,
    "experts": 384,
    "topk": 6,
    "ug_groups": 2,
    "swa_width": 128,
    "timeline": False,
}


def _key(launch: str = "k1", **changes: object) -> LaunchKey:
    return LaunchKey.of("deepseek_v41", launch, "gfx950", {**BUILD, **changes})  # type: ignore[dict-item]


def test_a_key_gives_the_case_of_its_build():
    made = case(_key(), 3)
    assert (made.family, made.arch, made.seed, made.ranks) == ("deepseek_v41", "gfx950", 3, 1)
    assert made.steps[0].calls[0].build == BUILD


def test_seeds_alternate_between_a_first_step_and_a_later_one():
    def state(seed: int) -> tuple[int, int | None]:
        buffers = case(_key(), seed).buffers[0]
        epoch = buffers["epoch"].parts[0].tensor().view(torch.int32)[0]
        return int(epoch), buffers["scratch"].fill

    assert state(1) == (0, 0)
    assert state(2) == (7, 0x7F)
    assert state(3) == (0, 0)


def test_every_two_seeds_a_narrow_step_is_at_the_next_edge():
    def position(seed: int) -> int:
        return int(case(_key(), seed).buffers[0]["pos"].parts[0].tensor()[0])

    # A window that is just not full, the first token, fewer and more compressed rows than are selected.
    assert [position(s) for s in (1, 2, 3, 4, 5, 7, 9)] == [1500, 1500, 127, 127, 0, 700, 1021]


@pytest.mark.parametrize(("launch", "changes"), [("k3", {}), ("k1", {"timeline": True})])
def test_what_has_no_case_is_refused(launch: str, changes: dict[str, object]):
    with pytest.raises(NoCase, match="no case"):
        case(_key(launch, **changes), 1)
