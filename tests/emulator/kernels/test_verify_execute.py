"""`mono-build verify --execute` over the test kernels: what passes, differs, varies, stops, and has no reference."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from command import Result, environment, run

from mono_build.cli.main import run as run_here

HERE = Path(__file__).resolve().parent

Verify = Callable[..., Result]


@pytest.fixture
def verify(
    kernels: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Verify:
    """Runs a command, ``verify --execute`` unless another is named, in this process.

    The test kernels' family is installed, and torch is imported once for all tests.
    """
    monkeypatch.syspath_prepend(str(HERE / "plugin"))

    def call(*arguments: str, command: str = "verify", store: Path = kernels) -> Result:
        execute = ["--execute"] if command == "verify" else []
        capsys.readouterr()
        code = run_here([command, *arguments, "--store", str(store), *execute])
        written = capsys.readouterr()
        return Result(code, written.out, written.err)

    return call


def launches(result: Result) -> dict[str, dict[str, object]]:
    """The executed launches by name."""
    return {x["key"]["launch"]: x for x in result.json["executed"]["launches"]}


def selected(*names: str, arch: str = "gfx950") -> list[str]:
    """The options for these launches."""
    return ["--arch", arch, *(w for n in names for w in ("--launch", n))]


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_what_is_right_matches_under_an_isa_model(verify: Verify, arch: str) -> None:
    result = verify(*selected("vector_add", "exchange", arch=arch))
    assert result.code == 0, result.out + result.err
    assert "emulated/vector_add" in result.out
    assert ", seed 1, 1 rank: matches under an ISA model" in result.out
    # A launch that waits for its peer has run on two devices at once.
    assert ", seed 1, 2 ranks: matches under an ISA model" in result.out
    assert result.out.splitlines()[-1] == "executed under an ISA model: 2 match"


def test_a_wrong_kernel_differs_and_the_error_is_in_units(verify: Verify) -> None:
    result = verify(*selected("bounded_add"), "--json")
    assert result.code == 8
    assert result.json["exit_code"] == 8
    (found,) = result.json["executed"]["launches"]
    assert (found["outcome"], found["error"], found["seed"]) == ("differs", None, 1)
    (output,) = found["outputs"]
    assert (output["name"], output["format"], output["elements"]) == ("sums", "f32", 1000)
    assert (output["passed"], output["tolerance"], output["excess"]) == (False, 0.0, None)
    # The kernel adds one to sums of order one: millions of f32 units.
    assert output["error"] > 1e6
    assert output["differing"] == 1000


def test_what_has_no_reference_is_named_and_never_passes(verify: Verify) -> None:
    result = verify(*selected("gemm_bf16", "vector_add"))
    assert result.code == 16
    assert (
        "emulated/gemm_bf16 gfx950 block=256: not checked: no reference for emulated/gemm_bf16"
        in (result.out)
    )
    assert result.out.splitlines()[-1] == "executed under an ISA model: 1 match, 1 not checked"


def test_a_wild_access_is_told_and_the_others_go_on(verify: Verify) -> None:
    result = verify(*selected("overrun", "vector_add", "gemm_bf16"), "--json")
    assert result.code == 24
    found = launches(result)
    assert [found[n]["outcome"] for n in ("overrun", "vector_add", "gemm_bf16")] == [
        "stopped",
        "matches",
        "unchecked",
    ]
    (stopped,) = found["overrun"]["runs"]
    assert stopped["error"]["kind"] == "WildAccess"
    assert "lane 40 writes 4 bytes" in stopped["error"]["what"]
    assert "workgroup (3, 0, 0), wave 3, kernel emulated_overrun" in stopped["error"]["where"]
    assert found["overrun"]["figures"] is None
    assert result.json["executed"]["outcomes"] == {
        "matches": 1,
        "differs": 0,
        "varies": 0,
        "stopped": 1,
        "unchecked": 1,
    }
    text = verify(*selected("overrun"))
    assert "STOPPED\n  turns of 512: lane 40 writes 4 bytes" in text.out


def test_a_sweep_over_schedules_finds_the_race_and_nothing_else(verify: Verify) -> None:
    result = verify(*selected("racing_softmax", "softmax"), "--schedules", "10", "--json")
    assert result.code == 8
    found = launches(result)
    assert found["softmax"]["outcome"] == "matches"
    assert found["racing_softmax"]["outcome"] == "differs"
    runs = [r["outcome"] for r in found["racing_softmax"]["runs"]]
    assert len(runs) == 10
    # A race, not a plain mistake.
    assert {"matches", "differs"} == set(runs)
    assert len(set(result.json["executed"]["schedules"])) == 10


def test_outputs_that_depend_on_the_schedule_are_told_unless_the_case_says_so(
    verify: Verify,
) -> None:
    told = verify(*selected("histogram", arch="gfx942"), "--schedules", "3", "--json")
    assert told.code == 8
    (found,) = told.json["executed"]["launches"]
    assert found["outcome"] == "varies"
    assert found["varying"] == ["tickets[0:8192] of rank 0"]
    declared = verify(*selected("histogram", arch="gfx950"), "--schedules", "3")
    assert declared.code == 0, declared.out


def test_cases_are_of_consecutive_seeds(verify: Verify) -> None:
    result = verify(*selected("vector_add"), "--seed", "5", "--cases", "2", "--json")
    assert [x["seed"] for x in result.json["executed"]["launches"]] == [5, 6]
    assert result.json["executed"]["outcomes"]["matches"] == 2


def test_figures_count_what_ran(verify: Verify) -> None:
    (found,) = verify(*selected("vector_add"), "--json").json["executed"]["launches"]
    figures = found["figures"]
    # 1000 sums of two f32 each, and in each of 16 waves three addresses and a count.
    assert (figures["global_read"], figures["global_written"]) == (8000 + 16 * 28, 4000)
    # Two loads and a store of each of the 16 waves.
    assert (figures["classes"]["load"], figures["classes"]["store"]) == (32, 16)
    assert sum(figures["classes"].values()) == figures["instructions"]
    assert (figures["polls"], figures["multiply_adds"], figures["lds_read"]) == (0, 0, 0)
    assert (figures["seed"], figures["ranks"], figures["schedule"]) == (1, 1, "turns of 512")


def test_figures_of_stages_add_up(verify: Verify) -> None:
    (found,) = verify(*selected("exchange"), "--json").json["executed"]["launches"]
    figures, stages = found["figures"], found["figures"]["stages"]
    assert len(stages) > 2
    for name in ("instructions", "global_read", "global_written", "polls"):
        assert sum(s[name] for s in stages) == figures[name]
    assert all(a["end"] <= b["start"] for a, b in pairwise(stages))
    # One wave of each workgroup looks again and again, and all looking is in stages that begin with it.
    assert figures["polls"] > 0


def test_a_file_of_counts_is_shown_by_inspect_and_compared_by_diff(
    verify: Verify, kernels: Path, tmp_path: Path
) -> None:
    counts = tmp_path / "counts.json"
    for name in ("vector_add", "exchange"):
        assert verify(*selected(name), "--counts", str(counts)).code == 0
    held = json.loads(counts.read_text())["launches"]
    assert sorted(x["key"]["launch"] for x in held) == ["exchange", "vector_add"]
    shown = verify(*selected("vector_add"), "--counts", str(counts), command="inspect")
    assert shown.code == 0, shown.err
    assert "executed under an ISA model" in shown.out
    assert "global memory 8.4 kB read, 4.0 kB written" in shown.out
    value = verify(*selected("vector_add"), "--counts", str(counts), "--json", command="inspect")
    assert value.json["figures"]["global_read"] == 8448
    absent = verify(*selected("softmax"), "--counts", str(counts), command="inspect")
    assert f"not executed: {counts} has no figures of this code" in absent.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--schedules", "0"], "--schedules takes 1 to 1,000, not 0"),
        (["--cases", "-1"], "--cases takes 1 to 1,000, not -1"),
        (["--seed", "-1"], "--seed takes 0 to 4,294,967,296, not -1"),
        (["--launch", "nothing"], "--launch nothing leaves nothing"),
        (["--key", "zz"], "no launch has a key that begins with zz"),
    ],
)
def test_what_cannot_be_meant_is_refused(verify: Verify, arguments: list[str], words: str) -> None:
    result = verify(*arguments)
    assert result.code in (2, 3)
    assert words in result.err


def test_options_of_execution_need_it(kernels: Path, tmp_path: Path) -> None:
    result = run(["verify", "--store", str(kernels), "--seed", "3"], environment(tmp_path))
    assert result.code == 2
    assert "--seed belong to --execute" in result.err


def test_a_damaged_code_object_is_a_fault_and_is_not_run(
    verify: Verify, kernels: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "store"
    shutil.copytree(kernels, broken)
    listed = verify(*selected("vector_add"), "--json", command="ls")
    digest = listed.json["launches"][0]["code_objects"][0]["digest"].removeprefix("sha256:")
    (broken / "blobs" / "sha256" / digest).write_bytes(b"")
    result = verify(*selected("vector_add"), "--json", store=broken)
    assert result.code == 9
    (found,) = result.json["executed"]["launches"]
    assert (found["outcome"], found["error"]["kind"]) == ("stopped", "StoreDamaged")


def test_without_the_emulators_packages_one_message_says_what_to_install(
    kernels: Path, tmp_path: Path
) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    # A finder that knows nothing of the package, as if it were not installed.
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "real = u.find_spec\n"
        "u.find_spec = lambda n, p=None: None if n == 'tinygrad' else real(n, p)\n"
    )
    variables = environment(tmp_path)
    variables["PYTHONPATH"] = f"{hidden}{os.pathsep}{variables['PYTHONPATH']}"
    result = run(["verify", "--store", str(kernels), "--execute"], variables)
    assert result.code == 4
    assert "the emulator needs tinygrad" in result.err
    assert "pip install '.[emulator]'" in result.err
