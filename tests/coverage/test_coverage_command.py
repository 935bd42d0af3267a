"""``mono-build coverage`` as a user runs it: what it prints, its exit codes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import Result, environment, run
from engine_kit import V41_MODEL, k3, m3, v41
from store_kit import add

from mono_build.store.writer import StoreWriter
from mono_runtime.hooks.deployments import Planned, plan_deployment
from mono_runtime.hooks.engine_config import read_engine_config
from mono_runtime.launch_key import LaunchKey


def keys_of(config: dict[str, Any], arch: str = "gfx950") -> tuple[LaunchKey, ...]:
    found = plan_deployment(read_engine_config(config), arch)
    assert isinstance(found, Planned), found
    return found.keys


def filled(path: Path, *keys: LaunchKey) -> Path:
    """A store with these launches; their code is made up."""
    with StoreWriter(path) as writer:
        writer.publish([add(writer, n, launch_key=key) for n, key in enumerate(keys)])
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with MiniMax-M3's launches but two."""
    return filled(tmp_path / "store", *keys_of(m3())[2:])


def written(tmp_path: Path, config: object) -> str:
    path = tmp_path / "server.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return str(path)


def covered(tmp_path: Path, config: object, *more: str, **environ: str) -> Result:
    arguments = ["coverage", "--vllm-config", written(tmp_path, config), *more]
    return run(arguments, environment(tmp_path, **environ))


def test_a_covered_server_exits_with_zero(tmp_path: Path) -> None:
    store = filled(tmp_path / "store", *keys_of(m3()))
    result = covered(tmp_path, m3(), "--store", str(store))
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == "MiniMax-M3 on gfx950, TP 4"
    assert lines[1].split() == ["rows", "launches", "found", "missing"]
    assert lines[2].split() == ["1", "1", "1", "0"]
    assert lines[-1] == f"16 launches needed: 16 found, 0 missing in {store}"


def test_missing_launches_exit_with_one_and_come_with_what_builds_them(
    tmp_path: Path, store: Path
) -> None:
    result = covered(tmp_path, m3(), "--store", str(store))
    assert (result.code, result.err) == (1, "")
    assert "missing minimax_m3/ffn gfx950 tokens=1\n  nearest: tokens is 3, not 1\n" in result.out
    assert f"16 launches needed: 14 found, 2 missing in {store}\n" in result.out
    assert "- {family: minimax_m3, arch: gfx950, tp: 4}\n" in result.out
    assert result.out.endswith(f"mono-build build --manifest FILE --store {store}\n")


def test_several_stores_count_as_one(tmp_path: Path, store: Path) -> None:
    rest = filled(tmp_path / "rest", *keys_of(m3())[:2])
    both = covered(tmp_path, m3(), "--store", str(store), "--store", str(rest))
    assert both.code == 0, both.out
    assert covered(tmp_path, m3(), MONO_STORE=f"{store}:{rest}").code == 0
    assert covered(tmp_path, m3(), MONO_STORE=str(rest)).code == 1


def test_json_has_every_miss_and_the_manifest(tmp_path: Path, store: Path) -> None:
    result = covered(tmp_path, m3(), "--store", str(store), "--json")
    assert result.code == 1
    assert set(result.json) == {
        "arch",
        "covered",
        "deployment",
        "family",
        "found",
        "manifest",
        "missing",
        "needed",
        "notes",
        "stores",
        "tp",
        "widths",
    }
    assert [m["key"]["build"]["tokens"] for m in result.json["missing"]] == [1, 2]
    assert result.json["manifest"].startswith("schema: 1\n")
    assert result.json["stores"][0]["path"] == str(store)


def test_only_the_first_misses_are_listed(tmp_path: Path) -> None:
    store = filled(tmp_path / "store", *keys_of(k3())[:1])
    result = covered(tmp_path, k3(), "--store", str(store))
    assert result.out.count("\nmissing ") == 10
    assert "and 19 more (--json has all)" in result.out


def test_the_architecture_is_the_one_that_the_store_has(tmp_path: Path) -> None:
    config = v41(attention_config=None, scheduler_config={"max_num_seqs": 1})
    store = filled(tmp_path / "store", *keys_of(config, "gfx942"))
    assert covered(tmp_path, config, "--store", str(store)).code == 0
    other = covered(tmp_path, config, "--store", str(store), "--arch", "gfx950")
    assert other.code == 1
    assert "on gfx950" in other.out
    assert '  nearest: arch is "gfx942", not "gfx950"' in other.out


def test_an_architecture_that_nobody_named_is_asked_for(tmp_path: Path, store: Path) -> None:
    result = covered(tmp_path, v41(), "--store", str(store))
    assert result.code == 2
    assert "launches of deepseek_v41 for no architecture" in result.err
    assert "do:    name it with --arch" in result.err


def test_a_model_of_no_family_is_told_before_an_architecture_is_asked_for(
    tmp_path: Path, store: Path
) -> None:
    other = v41(model_config={"hf_config": {"model_type": "llama", "architectures": None}})
    result = covered(tmp_path, other, "--store", str(store))
    assert result.code == 2
    assert "no family has launches for this model (llama)" in result.err
    assert "--arch" not in result.err


def test_a_section_that_is_none_is_one_error_of_the_file(tmp_path: Path, store: Path) -> None:
    result = covered(tmp_path, m3(kernel_config=True), "--store", str(store))
    assert (result.code, result.out) == (2, "")
    assert "kernel_config must be names with their values, not True" in result.err
    assert f"where: {tmp_path / 'server.json'}" in result.err


def test_a_server_that_asks_for_nothing_is_not_passed_over(tmp_path: Path, store: Path) -> None:
    off = m3(kernel_config={"monokernel": False})
    result = covered(tmp_path, off, "--store", str(store))
    assert result.code == 2
    assert "this server asks for no launches\n  mono kernels are off" in result.err


def test_every_reason_of_a_server_that_cannot_run_them_is_told(tmp_path: Path, store: Path) -> None:
    wrong = m3(cache_config=None, parallel_config={"tensor_parallel_size": 8})
    result = covered(tmp_path, wrong, "--store", str(store), "--json")
    assert result.code == 2
    what = result.json["error"]["what"]
    assert what.startswith("this server cannot run its mono kernels\n")
    assert len(what.splitlines()) == 4


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("{", 2, "it is not JSON: Expecting property name"),
        ("[1]", 2, "it is not a description of a configuration: list"),
        ("[" * 100_000, 2, "it is not JSON"),
        ("{}", 2, "model_config.hf_config.model_type is missing"),
        ('{"model_config": {"hf_config": {"model_type": 1}}}', 2, "must be text, not 1"),
    ],
)
def test_a_file_that_is_no_description_is_one_message(
    tmp_path: Path, store: Path, text: str, code: int, message: str
) -> None:
    result = covered(tmp_path, text, "--store", str(store))
    assert (result.code, result.out) == (code, "")
    assert message in result.err
    assert f"where: {tmp_path / 'server.json'}" in result.err


def test_files_and_stores_that_are_not_there(tmp_path: Path, store: Path) -> None:
    env = environment(tmp_path)
    nothing = run(["coverage", "--vllm-config", "none.json", "--store", str(store)], env)
    assert (nothing.code, "there is no such file" in nothing.err) == (3, True)
    assert covered(tmp_path, m3(), "--store", str(tmp_path / "none")).code == 3


def test_a_misspelt_name_is_a_warning(tmp_path: Path, store: Path) -> None:
    config = m3(scheduler_config={"max_num_seq": 4})
    result = covered(tmp_path, config, "--store", str(store))
    assert "nothing reads scheduler_config.max_num_seq (did you mean max_num_seqs?)" in result.err


def test_the_manifest_that_is_printed_is_understood(tmp_path: Path) -> None:
    layers = {"compress_ratios": [0, 2], "num_hidden_layers": 2, "index_source_layer_ids": [1]}
    config = v41(model_config={"hf_config": {**V41_MODEL, **layers}})
    store = filled(tmp_path / "store", *keys_of(config)[1:])
    printed = covered(tmp_path, config, "--store", str(store), "--json").json["manifest"]
    path = tmp_path / "missing.yaml"
    path.write_text(printed)
    listed = run(["plan", "--manifest", str(path), "--json"], environment(tmp_path))
    assert listed.json["planned"] == len(keys_of(config))
