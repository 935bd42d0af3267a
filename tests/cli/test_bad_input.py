"""Bad input and bad surroundings: one clear message, a non-zero exit, nothing lost."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest
from command import PLUGIN, Result, command, environment, manifest, run

from mono_runtime.oci import StoreReader


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


def refused(result: Result, code: int, *words: str) -> None:
    """The command ended with this code, one error that says all of ``words``, and no traceback."""
    assert result.code == code, result.err
    assert result.err.count("error:") == 1, result.err
    assert "Traceback" not in result.err
    for word in words:
        assert word in result.err, result.err


def test_no_architecture_and_no_gpu(home: Path) -> None:
    refused(run(["--tp", "4"], environment(home)), 2, "no architecture", "gfx942", "gfx950")


@pytest.mark.parametrize(
    ("arch", "words"),
    [
        ("gfx9999", ["unknown architecture 'gfx9999'", "known: gfx942, gfx950"]),
        ("x86_64", ["unknown architecture 'x86_64'", "known: gfx942, gfx950"]),
        ("gfx951", ["did you mean gfx950?"]),
        ("gfx942:xnak-", ["unknown feature flag 'xnak-'"]),
        ("../gfx950", ["unknown architecture"]),
        ("", ["unknown architecture ''"]),
    ],
)
def test_an_unknown_architecture(home: Path, arch: str, words: list[str]) -> None:
    refused(run(["plan", "--arch", arch, "--tp", "4"], environment(home)), 2, *words)


def test_architectures_are_taken_in_any_case_and_with_feature_flags(home: Path) -> None:
    arguments = ["plan", "--json", "--tp", "4", "--arch"]
    plain = run([*arguments, "gfx942"], environment(home))
    assert run([*arguments, "GFX942:sramecc+:xnack-"], environment(home)).json == plain.json
    assert plain.json["planned"] == 66


def test_variables_that_contradict_each_other(home: Path) -> None:
    variables = environment(home, ARCH="gfx942", FLYDSL_GPU_ARCH="gfx950")
    refused(run(["plan", "--tp", "4"], variables), 2, "ARCH=gfx942", "FLYDSL_GPU_ARCH=gfx950")


def test_an_explicit_architecture_wins_and_the_conflict_is_reported(home: Path) -> None:
    variables = environment(home, ARCH="gfx942")
    result = run(["plan", "--arch", "gfx950", "--tp", "4", "--json"], variables)
    assert result.code == 0
    assert {c["arch"] for c in result.json["counts"]} == {"gfx950"}
    assert "ARCH=gfx942 in the environment is ignored" in result.err


def test_the_environment_may_name_the_architecture(home: Path) -> None:
    result = run(["plan", "--tp", "4", "--json"], environment(home, ARCH="gfx950"))
    assert result.json["planned"] == 84
    assert "architecture gfx950 from the environment" in result.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--arch", "gfx942", "--tp", "2"], ["deepseek_v41 on gfx942", "TP 4 only, not 2"]),
        (["--arch", "gfx942", "--family", "kimi_k3"], ["kimi_k3 is not built for gfx942"]),
        (["--arch", "gfx950", "--family", "kimi_k9"], ["unknown family 'kimi_k9'", "'kimi_k3'"]),
        (["--arch", "gfx950", "--rows", "49"], ["49", "48"]),
        (["--arch", "gfx950", "--launch", "k4"], ["k4"]),
        (["--arch", "gfx950", "--tp", "four"], ["four"]),
        (["--arch", "gfx950", "--no-such-option"], ["No such option", "--no-such-option"]),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_reason(
    home: Path, arguments: list[str], words: list[str]
) -> None:
    refused(run(["build", *arguments], environment(home)), 2, *words)


@pytest.mark.parametrize(
    ("option", "values", "bounds"),
    [
        ("--jobs", ["0", "-1", "1025", "9" * 400], "1 to 1,024"),
        ("--timeout", ["0", "-5", "nan", "inf", "1e10", "604801"], "0.1 to 604,800 seconds (7"),
        ("--memory", ["0", "-1", "nan", "-inf", "1e12", "1e-12", "1024.5"], "0.01 to 1,024 GiB"),
        ("--retries", ["-1", "101"], "0 to 100"),
    ],
)
def test_a_limit_outside_its_bounds_is_refused_with_them(
    home: Path, option: str, values: list[str], bounds: str
) -> None:
    for value in values:
        result = run(["build", "--manifest", "quick", option, value], environment(home))
        refused(result, 2, f"{option} takes {bounds}", "not ")


def test_all_limits_outside_their_bounds_are_told_at_once(home: Path) -> None:
    arguments = ["--manifest", "quick", "--timeout", "nan", "--memory", "inf", "--retries", "-2"]
    result = run(["build", *arguments], environment(home))
    refused(result, 2, "not nan", "not inf", "not -2")


def test_the_bounds_of_the_limits_are_within_them(home: Path, tmp_path: Path) -> None:
    plan = manifest(tmp_path / "m.yaml", {}, rows=[1])
    for place, arguments in (
        ("most", ["-j", "1024", "--timeout", "604800", "--memory", "1024", "--retries", "100"]),
        ("least", ["-j", "1", "--timeout", "60", "--memory", "8", "--retries", "0"]),
    ):
        store = str(tmp_path / place)
        result = run(["build", "--store", store, "--manifest", plan, *arguments], environment(home))
        assert result.code == 0, result.err


def test_a_manifest_that_is_not_there(home: Path) -> None:
    result = run(["build", "--manifest", "no-such-manifest"], environment(home))
    refused(result, 3, "no manifest 'no-such-manifest'", "deepseek_v41-gfx950", "quick")


def test_an_unknown_command_names_the_known_ones(home: Path) -> None:
    refused(run(["biuld"], environment(home)), 2, "biuld")


def test_a_plan_of_nothing(home: Path, tmp_path: Path) -> None:
    plan = manifest(tmp_path / "m.yaml", rows=[1, 2])
    result = run(["build", "--manifest", plan, "--launch", "resident"], environment(home))
    refused(result, 2, "--launch resident leaves nothing")
    assert not (home / ".cache" / "mono-build" / "store").exists()


def test_a_manifest_with_many_mistakes_lists_all_of_them(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "schema: 1\n"
        "bulids: []\n"
        "builds:\n"
        "  - family: deepseek_v14\n"
        "  - family: deepseek_v41\n"
        "    arch: gfx905\n"
        "    tp: 3\n"
        "    rows: [0, 49]\n"
        "    deployment: {speculative_tokns: 5}\n"
    )
    result = run(["plan", "--manifest", str(path)], environment(home))
    refused(result, 2)
    for place in ("2:1", "4:13", "6:11", "7:9", "8:12", "8:15", "9:18"):
        assert f"{path}:{place}: " in result.err, place


def test_a_wheel_without_mono_kernels(home: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "vllm-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("vllm/__init__.py", "")
        archive.writestr("vllm/models/other.py", "")
        archive.writestr(
            "vllm-0.1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: vllm\nVersion: 0.1.0\n"
        )
    arguments = ["build", "--manifest", "quick", "--kernels", str(wheel)]
    refused(
        run(arguments, environment(home)), 4, "vllm.models.deepseek_v41.amd.mono", "no mono kernels"
    )


@pytest.mark.parametrize(
    ("kernels", "code", "words"),
    [
        ("installed", 4, ["vllm is not installed"]),
        ("/no/such/tree", 3, ["no wheel or tree"]),
        ("torch==2.0", 2, ["another package"]),
        ("latest", 2, ["not understood"]),
    ],
)
def test_kernel_sources_that_cannot_be_had(
    home: Path, kernels: str, code: int, words: list[str]
) -> None:
    arguments = ["build", "--manifest", "quick", "--kernels", kernels]
    refused(run(arguments, environment(home)), code, *words)


def test_a_store_made_by_a_newer_format_is_left_alone(home: Path, tmp_path: Path) -> None:
    plan, store = manifest(tmp_path / "m.yaml"), tmp_path / "store"
    assert run(["build", "--store", str(store), "--manifest", plan], environment(home)).code == 0
    listing = json.loads((store / "index.json").read_text())
    listing["manifests"][0]["artifactType"] = "application/vnd.mono-build.store.v9"
    (store / "index.json").write_text(json.dumps(listing))
    before = {p: p.read_bytes() for p in store.rglob("*") if p.is_file()}
    for name in ("build", "ls", "gc"):
        plans = ["--manifest", plan] if name == "build" else []
        result = run([name, "--store", str(store), *plans], environment(home))
        refused(result, 4, "store.v9", "rebuild the store")
    assert {p: p.read_bytes() for p in store.rglob("*") if p.is_file()} == before


def test_a_directory_that_is_no_store_is_left_alone(home: Path, tmp_path: Path) -> None:
    place = tmp_path / "thesis"
    place.mkdir()
    (place / "chapter").write_text("one")
    plan = manifest(tmp_path / "m.yaml")
    result = run(["build", "--store", str(place), "--manifest", plan], environment(home))
    refused(result, 4, "not empty and is no store")
    assert [p.name for p in place.iterdir()] == ["chapter"]


@pytest.mark.parametrize("name", ["ls", "inspect", "explain", "export", "diff"])
def test_a_store_that_is_not_there(home: Path, tmp_path: Path, name: str) -> None:
    place = str(tmp_path / "nowhere")
    arguments = {
        "explain": ["--store", place, "--manifest", "quick"],
        "export": [str(tmp_path / "f"), "--store", place],
        "diff": [place, place],
    }.get(name, ["--store", place])
    refused(run([name, *arguments], environment(home)), 3, "there is no store here", place)


def test_no_home_and_no_store_named(home: Path, tmp_path: Path) -> None:
    variables = environment(home)
    del variables["HOME"]
    plan = manifest(tmp_path / "m.yaml")
    result = run(["build", "--manifest", plan], variables)
    refused(result, 3, "without HOME", "--store DIR or MONO_STORE")


def mounted(*arguments: str | Path) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True).returncode == 0


def test_a_read_only_store(home: Path, tmp_path: Path) -> None:
    plan, store = manifest(tmp_path / "m.yaml", {}), tmp_path / "store"
    first = run(["build", "--store", str(store), "--manifest", plan, "--json"], environment(home))
    # A user without root sees the same through permissions.
    bound = mounted("--bind", store, store) and mounted("-o", "remount,bind,ro", store)
    if not bound:
        for path in [store, *store.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        other = manifest(tmp_path / "other.yaml", {}, rows=[9])
        result = run(["build", "--store", str(store), "--manifest", other], environment(home))
        refused(result, 4, "cannot write to the store", "--store or MONO_STORE")
        assert StoreReader.open(store).index_digest == first.json["index_digest"]
        for words in (["ls"], ["verify"], ["explain", "--manifest", plan]):
            assert run([*words, "--store", str(store)], environment(home)).code == 0
    finally:
        if bound:
            subprocess.run(["umount", store], check=True)
        else:
            for path in [store, *store.rglob("*")]:
                path.chmod(0o755)


def test_a_file_that_may_not_grow_publishes_nothing(home: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    small = manifest(tmp_path / "small.yaml", {}, rows=[1])
    first = run(["build", "--store", str(store), "--manifest", small, "--json"], environment(home))
    large = manifest(tmp_path / "large.yaml", {}, rows=[4096])
    # 4,096 instructions are 16 KiB; nothing else that a build writes is as large as 12.
    limited = command("build", "--store", str(store), "--manifest", large)
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 24; exec "$@"', "sh", *limited],
        env=environment(home),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert "a file would exceed the size limit" in done.stderr
    assert "Traceback" not in done.stderr
    assert StoreReader.open(store).index_digest == first.json["index_digest"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system")
def test_a_full_disk(home: Path, tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    assert mounted("-t", "tmpfs", "-o", "size=256k", "none", place)
    try:
        store = place / "store"
        plan = manifest(tmp_path / "m.yaml", {}, rows=[1])
        first = run(
            ["build", "--store", str(store), "--manifest", plan, "--json"], environment(home)
        )
        assert first.code == 0, first.err
        filler = place / "filler"
        descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):
            while os.write(descriptor, b"\0" * 4096):
                continue
        os.close(descriptor)
        more = manifest(tmp_path / "more.yaml", {}, rows=range(2, 40))
        result = run(
            ["build", "--store", str(store), "--manifest", more, "--json"], environment(home)
        )
        assert result.code in (1, 4)
        assert "the disk is full" in result.err
        assert "Traceback" not in result.err
        filler.unlink()
        assert StoreReader.open(store).index_digest == first.json["index_digest"]
        again = run(
            ["build", "--store", str(store), "--manifest", plan, "--json"], environment(home)
        )
        assert (again.code, again.json["reused"]) == (0, 1)
    finally:
        subprocess.run(["umount", place], check=True)


def test_an_unknown_variable_of_flydsl_is_named_with_the_nearest(home: Path) -> None:
    variables = environment(home, FLYDSL_COMPILE_OPT_LEVL="3", FLYDSL_DUMP_IR="1")
    result = run(["plan", "--arch", "gfx950", "--tp", "4"], variables)
    assert "did you mean FLYDSL_COMPILE_OPT_LEVEL?" in result.err
    assert "FLYDSL_DUMP_IR is set and ignored" in result.err


def test_a_broken_family_from_outside_names_its_distribution(home: Path, tmp_path: Path) -> None:
    info = tmp_path / "site" / "broken-2.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text("[mono_build.families]\nodd = no_such_module:FAMILY\n")
    variables = environment(home)
    variables["PYTHONPATH"] += f":{info.parent}"
    result = run(["plan", "--arch", "gfx950", "--family", "odd"], variables)
    refused(result, 4, "broken 2.0", "no_such_module")
    assert PLUGIN.is_dir()
