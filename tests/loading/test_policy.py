"""What each policy makes of each error, and how a policy is named."""

from __future__ import annotations

import pytest

from mono_runtime import errors
from mono_runtime.errors import InvalidValue, MonoError
from mono_runtime.policy import Decision, Policy, decide, policy_from, reason_of

RAISE, DECLINE, COMPILE = Decision.RAISE, Decision.DECLINE, Decision.COMPILE
# error: under stock, under jit with a compiler, and the word that counts it.
TABLE: dict[type[MonoError], tuple[Decision, Decision, str]] = {
    errors.LaunchMissing: (DECLINE, COMPILE, "missing"),
    errors.StoreMissing: (DECLINE, COMPILE, "absent"),
    errors.StoreDamaged: (DECLINE, COMPILE, "damaged"),
    errors.StorePermission: (DECLINE, COMPILE, "permission"),
    errors.StoreFormat: (DECLINE, COMPILE, "format"),
    errors.StoreUnsafe: (DECLINE, COMPILE, "unsafe"),
    errors.KernelSourcesDiffer: (DECLINE, COMPILE, "sources"),
    errors.WrongDevice: (DECLINE, COMPILE, "device"),
    # Compiled here, the grid would not fit either.
    errors.NotResident: (DECLINE, RAISE, "residency"),
    errors.InvalidValue: (RAISE, RAISE, "invalid"),
    errors.ArgumentMismatch: (RAISE, RAISE, "arguments"),
    errors.CaptureActive: (RAISE, RAISE, "capture"),
    errors.Released: (RAISE, RAISE, "released"),
    errors.RanksDisagree: (RAISE, RAISE, "ranks"),
    errors.RankLost: (RAISE, RAISE, "ranks"),
    errors.DriverError: (RAISE, RAISE, "driver"),
    errors.DriverMissing: (RAISE, RAISE, "driver"),
    errors.DeviceMissing: (RAISE, RAISE, "driver"),
    errors.PackageMissing: (RAISE, RAISE, "other"),
    MonoError: (RAISE, RAISE, "other"),
}


@pytest.mark.parametrize("kind", TABLE)
def test_what_each_policy_makes_of_an_error(kind: type[MonoError]) -> None:
    error = kind("it failed")
    stock, jit, reason = TABLE[kind]
    for can_compile in (False, True):
        assert decide(Policy.STRICT, error, can_compile) is RAISE
        assert decide(Policy.STOCK, error, can_compile) is stock
    assert decide(Policy.JIT, error, can_compile=True) is jit
    assert decide(Policy.JIT, error, can_compile=False) is RAISE
    assert reason_of(error) == reason


def test_an_error_of_another_kind_has_a_word_too() -> None:
    assert reason_of(OSError("disk")) == "other"


@pytest.mark.parametrize(
    ("environ", "policy"),
    [
        ({}, Policy.STRICT),
        ({"MONO_POLICY": ""}, Policy.STRICT),
        ({"MONO_POLICY": "  "}, Policy.STRICT),
        ({"MONO_POLICY": "strict"}, Policy.STRICT),
        ({"MONO_POLICY": " Stock "}, Policy.STOCK),
        ({"MONO_POLICY": "jit"}, Policy.JIT),
    ],
)
def test_the_variable_names_the_policy(environ: dict[str, str], policy: Policy) -> None:
    assert policy_from(environ) is policy


def test_the_variable_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONO_POLICY", "stock")
    assert policy_from() is Policy.STOCK


def test_a_misspelt_policy_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidValue) as caught:
        policy_from({"MONO_POLICY": "stcok"})
    assert str(caught.value) == (
        "unknown policy 'stcok'\n"
        "  where: MONO_POLICY\n"
        "  do:    did you mean stock? known: strict, stock, jit"
    )


def test_a_policy_that_resembles_none_gets_the_list_alone() -> None:
    with pytest.raises(InvalidValue) as caught:
        Policy.of("whatever")
    assert caught.value.fix == "known: strict, stock, jit"


def test_a_policy_names_itself() -> None:
    assert Policy.of(Policy.JIT) is Policy.JIT
