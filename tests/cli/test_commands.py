"""Commands over a small store: what they print for people and for programs, and completion."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import Result, command, environment, manifest, run

from mono_runtime.oci import StoreReader


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def store(home: Path) -> Path:
    """Four launches of the stand-in family: two architectures, one width, two keys of equal IR each."""
    plan = manifest(home / "m.yaml", {"fold": [False, True]}, rows=[8], arch="[gfx942, gfx950]")
    place = home / "store"
    result = run(["build", "--store", str(place), "--manifest", plan], environment(home))
    assert result.code == 0, result.err
    return place


def done(result: Result) -> Result:
    assert result.code == 0, result.err
    assert result.err == ""
    return result


def test_ls_lists_and_narrows(home: Path, store: Path) -> None:
    listed = done(run(["ls", "--store", str(store)], environment(home)))
    assert listed.out.splitlines()[0].split()[:3] == ["key", "family", "launch"]
    assert "4 launches, 2 code objects (1 distinct machine codes)" in listed.out
    narrowed = done(
        run(["ls", "--store", str(store), "--arch", "gfx942", "--json"], environment(home))
    )
    assert [e["key"]["arch"] for e in narrowed.json["launches"]] == ["gfx942", "gfx942"]
    nothing = run(["ls", "--store", str(store), "--rows", "9"], environment(home))
    assert nothing.code == 3
    assert "--rows 9 leaves nothing: the widths are 8" in nothing.err


def test_inspect_shows_key_plan_resources_and_provenance(home: Path, store: Path) -> None:
    keys = done(run(["ls", "--store", str(store), "--json"], environment(home))).json["launches"]
    first = keys[0]["key_digest"].removeprefix("sha256:")
    shown = done(run(["inspect", first[:10], "--store", str(store)], environment(home)))
    for word in (
        "standin/work gfx942 rows=8",
        "shared with standin/work gfx942 rows=8 fold=true",
        "grid (4, 1, 1) block (256, 1, 1), 16 B of kernel arguments",
        "VGPR 24, AGPR 0, SGPR 16, LDS 0 B",
        "package=standin_kernels",
    ):
        assert word in shown.out
    value = done(run(["inspect", first, "--store", str(store), "--json"], environment(home))).json
    assert value["key"] == keys[0]["key"]
    mine = [s for s in value["inputs"]["sources"] if s.startswith("standin_kernels/")]
    assert sorted(mine) == [
        "standin_kernels/__init__.py",
        "standin_kernels/helper.py",
        "standin_kernels/launches.py",
    ]
    parts = ["bitcode", "builder", "flydsl", "linker", "numpy", "python", "torch"]
    assert sorted(value["inputs"]["toolchain"]) == parts


def test_inspect_of_several_lists_them(home: Path, store: Path) -> None:
    result = run(["inspect", "--store", str(store)], environment(home))
    assert result.code == 2
    assert "4 launches are meant:" in result.err


def test_inspect_asm_uses_the_first_llvm_that_knows_the_processor(
    home: Path, store: Path, tmp_path: Path
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    old = "#!/bin/sh\necho \"'gfx950' is not a recognized processor\" >&2\n"
    new = '#!/bin/sh\necho "s_endpgm $*"\n'
    for name, script in (("llvm-objdump-21", old), ("llvm-objdump-20", new)):
        (tools / name).write_text(script)
        (tools / name).chmod(0o755)
    arguments = ["inspect", "--store", str(store), "--arch", "gfx950", "--asm"]
    key = run(["ls", "--store", str(store), "--arch", "gfx950", "--json"], environment(home))
    arguments.insert(1, key.json["launches"][0]["key_digest"])
    variables = environment(home)
    variables["PATH"] = f"{tools}:{variables['PATH']}"
    shown = run(arguments, variables)
    assert shown.code == 0, shown.err
    assert "s_endpgm -d --triple=amdgcn-amd-amdhsa --mcpu=gfx950" in shown.out
    (tools / "llvm-objdump-20").unlink()
    variables["PATH"] = str(tools)
    refused = run(arguments, variables)
    assert refused.code == 4
    assert "no llvm-objdump here can disassemble gfx950" in refused.err


def test_verify_finds_what_is_wrong_and_narrows(home: Path, store: Path, tmp_path: Path) -> None:
    broken = tmp_path / "store"
    shutil.copytree(store, broken)
    reader = StoreReader.open(broken)
    entry = next(e for e in reader.index.entries if e.key.arch == "gfx950")
    digest = reader.artefact(entry.artefact).code_objects[0].digest
    (broken / "blobs" / "sha256" / digest.removeprefix("sha256:")).write_bytes(b"")
    result = run(["verify", "--store", str(broken), "--json"], environment(home))
    assert result.code == 1
    (fault,) = result.json["faults"]
    assert (fault["kind"], fault["expected"]) == ("corrupt", digest)
    narrowed = ["verify", "--store", str(broken), "--arch"]
    assert run([*narrowed, "gfx942"], environment(home)).code == 0
    assert run([*narrowed, "gfx950"], environment(home)).code == 1


def test_export_and_import_of_one_architecture(home: Path, store: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "store.tar.zst", tmp_path / "other"
    arguments = ["--store", str(store), "--json"]
    whole = done(run(["export", str(file), *arguments], environment(home))).json
    assert whole["entries"] == 4
    taken = ["import", str(file), "--store", str(other), "--arch", "gfx950", "--json"]
    assert done(run(taken, environment(home))).json["entries"] == 2
    listed = done(run(["ls", "--store", str(other), "--json"], environment(home))).json
    assert {e["key"]["arch"] for e in listed["launches"]} == {"gfx950"}
    assert done(run(["verify", "--store", str(other)], environment(home))).code == 0
    part = tmp_path / "part.tar.zst"
    narrowed = run(["export", str(part), *arguments, "--arch", "gfx950"], environment(home))
    assert narrowed.json["index"] == listed["index_digest"]


def test_diff_of_equal_and_of_different_stores(home: Path, store: Path, tmp_path: Path) -> None:
    same = done(run(["diff", str(store), str(store)], environment(home)))
    assert "4 launches equal, 0 changed" in same.out
    plan = manifest(tmp_path / "m.yaml", {"fold": [False]}, rows=[8, 9], arch="gfx950")
    other = tmp_path / "other"
    built = run(
        ["build", "--store", str(other), "--manifest", plan], environment(home, STANDIN_SETTING="x")
    )
    assert built.code == 0
    result = run(["diff", str(store), str(other), "--json"], environment(home))
    assert result.code == 1
    found = result.json
    assert (len(found["only_a"]), len(found["only_b"]), len(found["changed"])) == (3, 1, 1)
    (change,) = found["changed"][0]["inputs"]
    assert (change["name"], change["a"], change["b"]) == ("STANDIN_SETTING", None, "x")
    assert found["changed"][0]["code_objects"] is None


def test_diff_names_an_earlier_build_by_its_index(home: Path, tmp_path: Path) -> None:
    place = tmp_path / "store"
    digests = []
    for rows in ([1], [1, 2]):
        plan = manifest(tmp_path / "m.yaml", {}, rows=rows)
        built = run(
            ["build", "--store", str(place), "--manifest", plan, "--json"], environment(home)
        )
        digests.append(built.json["index_digest"])
    result = run(["diff", f"{place}@{digests[0]}", str(place), "--json"], environment(home))
    assert [k["build"]["rows"] for k in result.json["only_b"]] == [2]
    assert result.json["same"] == 1
    kept = run(
        ["gc", "--store", str(place), "--keep", digests[0], "--dry-run", "--json"],
        environment(home),
    )
    assert kept.json["removed"] == []
    dropped = run(["gc", "--store", str(place), "--json"], environment(home))
    assert digests[0] in [r["digest"] for r in dropped.json["removed"]]
    gone = run(["gc", "--store", str(place), "--keep", digests[0]], environment(home))
    assert gone.code == 3
    assert "cannot keep" in gone.err


def test_doctor_says_what_is_here_and_exits_with_whether_it_is_enough(home: Path) -> None:
    result = run(["doctor", "--json"], environment(home))
    items = {i["name"]: i for i in result.json["items"]}
    assert result.code == 0, result.out
    assert items["flydsl"]["state"] == "ok"
    assert len(items["flydsl"]["digest"]) == 64
    assert items["linker"]["looked"]


def test_a_store_of_mono_store_is_used_and_a_fallback_is_said(
    home: Path, store: Path, tmp_path: Path
) -> None:
    both = f"{store}:{tmp_path / 'later'}"
    plan = manifest(tmp_path / "m.yaml", {}, rows=[3])
    built = run(["build", "--manifest", plan, "--json"], environment(home, MONO_STORE=both))
    assert built.json["store"] == str(tmp_path / "later")
    listed = run(["ls", "--json"], environment(home, MONO_STORE=both))
    assert listed.json["store"] == str(tmp_path / "later")
    nowhere = run(
        ["build", "--manifest", plan, "--json"], environment(home, MONO_STORE=f"{plan}/store")
    )
    assert "no store of MONO_STORE can be written" in nowhere.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("mono-build ", {"build", "plan", "doctor", "import"}),
        ("mono-build --ar", {"--arch"}),
        ("mono-build --arch gfx", {"gfx942", "gfx950"}),
        (
            "mono-build build --manifest deepseek_v41-gfx942",
            {"deepseek_v41-gfx942", "deepseek_v41-gfx942-dspark"},
        ),
        ("mono-build ls --family ki", {"kimi_k3"}),
        ("mono-build inspect --launch k", {"k1", "k2"}),
    ],
)
def test_the_shell_completes_commands_options_and_values(
    home: Path, words: str, expected: set[str]
) -> None:
    parts = words.split(" ")
    variables = environment(
        home,
        _MONO_BUILD_COMPLETE="bash_complete",
        COMP_WORDS=words,
        COMP_CWORD=str(len(parts) - 1),
    )
    script = "import sys; sys.argv[0] = 'mono-build'; from mono_build.cli import main; main()"
    completed = subprocess.run(
        [sys.executable, "-c", script], env=variables, capture_output=True, text=True
    )
    offered = {line.partition(",")[2] for line in completed.stdout.splitlines()}
    assert expected <= offered, completed.stderr


def test_a_terminal_gets_a_bar_and_colours_and_no_color_is_honoured(
    home: Path, tmp_path: Path
) -> None:
    plan = manifest(tmp_path / "m.yaml", {"pause": [0.3]}, rows=[1, 2])

    def on_terminal(name: str, **more: str) -> str:
        arguments = command("build", "--store", str(tmp_path / name), "--manifest", plan)
        reader, terminal = pty.openpty()
        process = subprocess.Popen(
            arguments,
            env=environment(home, TERM="xterm-256color", **more),
            stdout=subprocess.DEVNULL,
            stderr=terminal,
        )
        os.close(terminal)
        seen = b""
        while True:
            try:
                chunk = os.read(reader, 65536)
            except OSError:
                break
            if not chunk:
                break
            seen += chunk
        assert process.wait() == 0
        return seen.decode()

    seen = on_terminal("colour")
    assert "2/2" in seen
    assert "compiled standin/work gfx950 rows=1 pause=0.3" in seen
    assert "\x1b[38;" in seen or "\x1b[3" in seen
    plain = on_terminal("plain", NO_COLOR="1")
    assert "2/2" in plain
    assert "\x1b[3" not in plain.replace("\x1b[?25", "")


def test_without_arguments_the_help_is_printed_and_nothing_is_built(home: Path) -> None:
    result = run([], environment(home))
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Usage: mono-build [OPTIONS] ")
    assert "error" not in result.err
    asked = run(["--help"], environment(home))
    assert (asked.code, asked.out, asked.err) == (0, result.err, "")


def test_the_version_is_the_packages(home: Path) -> None:
    import mono_runtime

    assert run(["--version"], environment(home)).out == f"mono-build {mono_runtime.__version__}\n"


def test_a_reader_that_has_seen_enough_is_no_error(home: Path, store: Path) -> None:
    process = subprocess.Popen(
        command("ls", "--store", str(store)),
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
    process.wait()
    process.stderr.close()
