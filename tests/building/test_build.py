"""Builds with the stand-in family: counts, reuse, keys, and everything that may not change a byte."""

from __future__ import annotations

import filecmp
import os
import shutil
from pathlib import Path

import pytest
from command import PLUGIN, Result, environment, manifest, run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


def build(home: Path, store: Path, *arguments: str, **variables: str) -> Result:
    return run(
        ["build", "--store", str(store), "--json", *arguments], environment(home, **variables)
    )


def counts(result: Result) -> tuple[int, ...]:
    names = ("planned", "traced", "compiled", "reused", "failed", "not_started")
    return tuple(result.json[n] for n in names)


def same_files(a: Path, b: Path) -> list[str]:
    """Names of files that are in one tree only or differ, as `diff -r` would list them."""
    comparison = filecmp.dircmp(a, b)
    found = [*comparison.left_only, *comparison.right_only]
    _, differing, errors = filecmp.cmpfiles(a, b, comparison.common_files, shallow=False)
    for name in comparison.common_dirs:
        found += same_files(a / name, b / name)
    return [*found, *differing, *errors]


def test_a_build_counts_what_it_did_and_an_unchanged_one_reuses_it(
    home: Path, tmp_path: Path
) -> None:
    plan = manifest(tmp_path / "m.yaml", {"fold": [False, True]}, rows=[1, 2, 3])
    first = build(home, tmp_path / "store", "--manifest", plan)
    assert first.code == 0, first.err
    # Three widths of two keys each: the second of a pair has equal IR, so it is traced, not compiled.
    assert counts(first) == (6, 6, 3, 3, 0, 0)
    assert (first.json["code_objects"], first.json["machine_codes"]) == (3, 3)
    assert first.json["cpu_seconds"] > 0
    again = build(home, tmp_path / "store", "--manifest", plan)
    assert again.code == 0
    assert counts(again) == (6, 0, 0, 6, 0, 0)
    assert again.json["index_digest"] == first.json["index_digest"]


def test_an_idle_store_holds_nothing_but_the_oci_layout(home: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    build(home, store, "--manifest", manifest(tmp_path / "m.yaml"))
    assert sorted(p.name for p in store.iterdir()) == ["blobs", "index.json", "oci-layout"]
    logs = home / ".cache" / "mono-build" / "logs"
    assert list(logs.iterdir()) == []


def test_equal_input_gives_equal_bytes_wherever_it_lies_and_whoever_builds(
    home: Path, tmp_path: Path
) -> None:
    plan = manifest(tmp_path / "m.yaml", {"fold": [False, True]})
    build(home, tmp_path / "one", "--manifest", plan, "-j", "1")
    moved = tmp_path / "elsewhere" / "plugin"
    shutil.copytree(PLUGIN, moved)
    other_home = tmp_path / "other home"
    other_home.mkdir()
    variables = environment(
        other_home, PYTHONHASHSEED="4711", USER="somebody", RANK="3", TZ="Asia/Tokyo"
    )
    variables["PYTHONPATH"] = variables["PYTHONPATH"].replace(str(PLUGIN), str(moved))
    for path in moved.rglob("*.py"):
        os.utime(path, (1, 1))
    result = run(
        ["build", "--store", str(tmp_path / "two"), "--manifest", plan, "-j", "2"],
        variables,
        cwd=other_home,
    )
    assert result.code == 0, result.err
    assert same_files(tmp_path / "one", tmp_path / "two") == []


def test_nothing_in_a_store_names_a_path_a_user_or_a_host(home: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    build(home, store, "--manifest", manifest(tmp_path / "m.yaml"), USER="somebody-in-particular")
    words = [str(tmp_path), str(PLUGIN), str(home), "somebody-in-particular", os.uname().nodename]
    for path in (p for p in store.rglob("*") if p.is_file()):
        content = path.read_bytes()
        assert [w for w in words if w.encode() in content] == [], path


def test_a_changed_helper_of_the_kernels_is_a_miss_that_explain_names(
    home: Path, tmp_path: Path
) -> None:
    plan, store = manifest(tmp_path / "m.yaml", {}), tmp_path / "store"
    build(home, store, "--manifest", plan)
    mine = tmp_path / "plugin"
    shutil.copytree(PLUGIN, mine)
    helper = mine / "standin_kernels" / "helper.py"
    helper.write_text(helper.read_text().replace("0xBF810000", "0xBF810001"))
    variables = environment(home)
    variables["PYTHONPATH"] = variables["PYTHONPATH"].replace(str(PLUGIN), str(mine))
    arguments = ["--store", str(store), "--manifest", plan, "--json"]
    explained = run(["explain", *arguments], variables)
    (first, _) = explained.json["stale"]
    assert first["state"] == "changed"
    assert [d["name"] for d in first["differences"]] == ["standin_kernels/helper.py"]
    rebuilt = run(["build", *arguments], variables)
    assert counts(rebuilt) == (2, 2, 2, 0, 0, 0)


def test_a_changed_comment_is_traced_but_not_compiled_again(home: Path, tmp_path: Path) -> None:
    plan, store = manifest(tmp_path / "m.yaml", {}), tmp_path / "store"
    build(home, store, "--manifest", plan)
    mine = tmp_path / "plugin"
    shutil.copytree(PLUGIN, mine)
    helper = mine / "standin_kernels" / "helper.py"
    helper.write_text(helper.read_text() + "# a remark\n")
    variables = environment(home)
    variables["PYTHONPATH"] = variables["PYTHONPATH"].replace(str(PLUGIN), str(mine))
    planned = run(["plan", "--store", str(store), "--manifest", plan, "--json"], variables)
    assert planned.json["states"] == {"unknown": 2}
    rebuilt = run(["build", "--store", str(store), "--manifest", plan, "--json"], variables)
    assert counts(rebuilt) == (2, 2, 0, 2, 0, 0)
    # The provenance is that of the present sources, as a fresh build would record it.
    fresh = run(
        ["build", "--store", str(tmp_path / "fresh"), "--manifest", plan, "--json"], variables
    )
    assert rebuilt.json["index_digest"] == fresh.json["index_digest"]


def test_a_variable_that_changes_code_is_a_miss_and_others_are_not(
    home: Path, tmp_path: Path
) -> None:
    plan, store = manifest(tmp_path / "m.yaml", {}), tmp_path / "store"
    build(home, store, "--manifest", plan)
    assert counts(build(home, store, "--manifest", plan, SOMETHING="else"))[1] == 0
    arguments = ["explain", "--store", str(store), "--manifest", plan, "--json"]
    explained = run(arguments, environment(home, STANDIN_SETTING="on"))
    assert explained.json["stale"][0]["differences"] == [
        {"kind": "environment", "name": "STANDIN_SETTING", "recorded": None, "current": "on"}
    ]
    level = run(arguments, environment(home, FLYDSL_COMPILE_OPT_LEVEL="3"))
    assert level.json["stale"][0]["differences"][0]["name"] == "FLYDSL_COMPILE_OPT_LEVEL"


def test_a_damaged_blob_is_noticed_and_built_again(home: Path, tmp_path: Path) -> None:
    plan, store = manifest(tmp_path / "m.yaml", {}), tmp_path / "store"
    first = build(home, store, "--manifest", plan)
    largest = max(
        (p for p in (store / "blobs" / "sha256").iterdir()),
        key=lambda p: p.read_bytes()[:4] == b"\x7fELF",
    )
    whole = largest.read_bytes()
    largest.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    again = build(home, store, "--manifest", plan)
    assert again.code == 0
    assert "damaged in the store" in again.err
    assert counts(again)[:3] == (2, 1, 1)
    assert again.json["index_digest"] == first.json["index_digest"]
    assert largest.read_bytes() == whole


def test_check_builds_twice_and_finds_equal_bytes(home: Path, tmp_path: Path) -> None:
    result = build(home, tmp_path / "store", "--manifest", manifest(tmp_path / "m.yaml"), "--check")
    assert result.code == 0
    assert result.json["check"]["differing"] == []


def test_two_architectures_are_built_by_processes_of_their_own(home: Path, tmp_path: Path) -> None:
    plan = manifest(tmp_path / "m.yaml", rows=[1], arch="[gfx942, gfx950]")
    result = build(home, tmp_path / "store", "--manifest", plan)
    assert counts(result) == (4, 4, 2, 2, 0, 0)
    listed = run(["ls", "--store", str(tmp_path / "store"), "--json"], environment(home)).json
    archs = {(e["key"]["arch"], e["code_objects"][0]["digest"]) for e in listed["launches"]}
    assert sorted(a for a, _ in archs) == ["gfx942", "gfx950"]
    # e_flags at byte 48: 0x4c is gfx942, 0x4f is gfx950 (LLVM AMDGPUUsage).
    for arch, digest in archs:
        data = (
            tmp_path / "store" / "blobs" / "sha256" / digest.removeprefix("sha256:")
        ).read_bytes()
        assert data[48] == {"gfx942": 0x4C, "gfx950": 0x4F}[arch]


def test_data_goes_to_standard_output_and_everything_else_to_standard_error(
    home: Path, tmp_path: Path
) -> None:
    plan = manifest(tmp_path / "m.yaml", {})
    result = build(home, tmp_path / "store", "--manifest", plan)
    assert result.json["planned"] == 2
    assert "compiled standin/work gfx950 rows=1" in result.err
    assert "\x1b" not in result.err + result.out


def test_a_complete_store_is_only_read_and_may_be_read_only(home: Path, tmp_path: Path) -> None:
    plan, store = manifest(tmp_path / "m.yaml"), tmp_path / "store"
    first = build(home, store, "--manifest", plan)
    changed = {p: p.stat().st_mtime_ns for p in [store, *store.rglob("*")]}
    again = build(home, store, "--manifest", plan)
    assert (again.code, again.json["index_digest"]) == (0, first.json["index_digest"])
    assert {p: p.stat().st_mtime_ns for p in [store, *store.rglob("*")]} == changed


def test_residency_is_proved_for_reused_launches_too(home: Path, tmp_path: Path) -> None:
    plan = manifest(
        tmp_path / "m.yaml", {"grid": [1024]}, rows=[1], launch="resident", arch="gfx942"
    )
    store = tmp_path / "store"
    assert build(home, store, "--manifest", plan).code == 0
    # 8 workgroups of 4 waves fit on each of the MI308X's 80 compute units.
    refused = build(home, store, "--manifest", plan, "--device", "MI308X")
    assert refused.code == 1
    assert counts(refused) == (1, 0, 0, 0, 1, 0)
    assert "80 compute units hold 640" in refused.err


def test_a_device_of_another_architecture_is_refused(home: Path, tmp_path: Path) -> None:
    plan = manifest(tmp_path / "m.yaml", {})
    result = build(home, tmp_path / "store", "--manifest", plan, "--device", "MI300X")
    assert result.code == 2
    assert "MI300X is a gfx942 device, and only gfx950 is built" in result.err


def test_a_long_temporary_directory_is_no_obstacle(home: Path, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    plan = manifest(tmp_path / "m.yaml", {})
    result = build(home, tmp_path / "store", "--manifest", plan, TMPDIR=str(deep))
    assert result.code == 0, result.err


def test_a_filled_cache_may_be_read_only(home: Path, tmp_path: Path) -> None:
    cache = home / ".cache" / "mono-build"
    cache.mkdir(parents=True)
    (cache / "logs").write_text("a file, so that no directory can be made there")
    plan = manifest(tmp_path / "m.yaml", {})
    result = build(home, tmp_path / "store", "--manifest", plan)
    assert result.code == 0, result.err


def test_other_bytes_from_equal_ir_are_reported(home: Path, tmp_path: Path) -> None:
    plan, store = manifest(tmp_path / "m.yaml", {}, rows=[1]), tmp_path / "store"
    assert build(home, store, "--manifest", plan).code == 0
    for path in (store / "blobs" / "sha256").iterdir():
        if path.read_bytes()[:4] == b"\x7fELF":
            path.unlink()
    # A compiler with a hidden input: same traced IR, same recorded tools, other registers.
    mine = tmp_path / "plugin"
    shutil.copytree(PLUGIN, mine)
    compiler = mine / "standin_compiler.py"
    compiler.write_text(compiler.read_text().replace("vgpr: int = 24", "vgpr: int = 32"))
    variables = environment(home)
    variables["PYTHONPATH"] = variables["PYTHONPATH"].replace(str(PLUGIN), str(mine))
    result = run(["build", "--store", str(store), "--manifest", plan, "--json"], variables)
    assert result.code == 0
    assert "equal IR and tools gave other bytes than before" in result.err


def test_equal_ir_of_a_launch_that_waits_and_one_that_does_not_is_kept_apart(
    home: Path, tmp_path: Path
) -> None:
    work = manifest(tmp_path / "work.yaml", {}, rows=[1])
    resident = manifest(tmp_path / "resident.yaml", {"grid": [4]}, rows=[1], launch="resident")
    orders = {}
    for name, plans in (("one", (work, resident)), ("other", (resident, work))):
        for plan in plans:
            assert build(home, tmp_path / name, "--manifest", plan).code == 0
        shown = run(
            ["inspect", "--store", str(tmp_path / name), "--launch", "resident", "--json"],
            environment(home),
        ).json
        assert shown["artefact"]["plan"]["persistent"] is True
        orders[name] = run(
            ["ls", "--store", str(tmp_path / name), "--json"], environment(home)
        ).json
    assert orders["one"]["index_digest"] == orders["other"]["index_digest"]


def test_a_renamed_parameter_of_a_launcher_is_compiled_anew(home: Path, tmp_path: Path) -> None:
    plan, store = manifest(tmp_path / "m.yaml", {}, rows=[1]), tmp_path / "store"
    assert build(home, store, "--manifest", plan).code == 0
    mine = tmp_path / "plugin"
    shutil.copytree(PLUGIN, mine)
    compiler = mine / "standin_compiler.py"
    compiler.write_text(compiler.read_text().replace('"source", "target"', '"weights", "target"'))
    variables = environment(home)
    variables["PYTHONPATH"] = variables["PYTHONPATH"].replace(str(PLUGIN), str(mine))
    result = run(["build", "--store", str(store), "--manifest", plan, "--json"], variables)
    assert counts(result)[:3] == (1, 1, 1)
    shown = run(["inspect", "--store", str(store), "--json"], variables).json
    arguments = shown["artefact"]["plan"]["arguments"].split(", ")
    assert [a.split()[0] for a in arguments] == ["weights", "target"]


def test_a_changed_family_from_outside_is_a_miss_that_explain_names(
    home: Path, tmp_path: Path
) -> None:
    plan = manifest(tmp_path / "m.yaml", {"grid": [4]}, rows=[1], launch="resident")
    store = tmp_path / "store"
    assert build(home, store, "--manifest", plan).code == 0
    mine = tmp_path / "plugin"
    shutil.copytree(PLUGIN, mine)
    family = mine / "standin_family.py"
    spec = '"workgroups that wait for each other", (ROWS, GRID), _BUILD, _FACTORY'
    text = family.read_text()
    assert text.count(spec) == 1
    family.write_text(text.replace(spec, f"{spec}, persistent=False"))
    variables = environment(home)
    variables["PYTHONPATH"] = variables["PYTHONPATH"].replace(str(PLUGIN), str(mine))
    arguments = ["--store", str(store), "--manifest", plan, "--json"]
    explained = run(["explain", *arguments], variables).json
    assert [d["name"] for d in explained["stale"][0]["differences"]] == ["standin_family.py"]
    assert counts(run(["build", *arguments], variables))[:3] == (1, 1, 1)
    shown = run(["inspect", "--store", str(store), "--json"], variables).json
    assert shown["artefact"]["plan"]["persistent"] is False
