"""The private ROCM_PATH, the facts that enter keys, and pins."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from mono_build.errors import ToolchainError, UsageError
from mono_build.toolchain.bitcode import Bitcode
from mono_build.toolchain.flydsl import FlyDSL
from mono_build.toolchain.identity import Toolchain, check_pins
from mono_build.toolchain.linker import Linker
from mono_build.toolchain.toolkit import toolkit


@dataclass(frozen=True)
class Pins:
    flydsl: str | None = None
    lld: str | None = None
    kernels: str | None = None
    python: str | None = None


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def linker(path: Path, *arguments: str) -> Linker:
    return Linker(path, arguments, "LLD 20.1.2 (compatible with GNU linkers)", "ab" * 32, "PATH")


def tools(tmp_path: Path, name: str = "x") -> Toolchain:
    return Toolchain(
        FlyDSL(tmp_path / name, "0.5.0", "cd" * 32),
        linker(tmp_path / name / "ld.lld"),
        Bitcode(None, "ef" * 32),
        "3.11",
        "2.13.0+cpu",
    )


def test_a_toolkit_leads_to_the_linker_and_the_libraries(tmp_path: Path) -> None:
    lld = program(tmp_path / "ld.lld", 'echo "lld $*"')
    libraries = tmp_path / "bc"
    libraries.mkdir()
    (libraries / "ocml.bc").write_bytes(b"BC")
    with toolkit(linker(lld), Bitcode(libraries, "")) as root:
        ran = subprocess.run(
            [root / "llvm/bin/ld.lld", "-shared", "a b"], capture_output=True, check=True
        )
        assert ran.stdout == b"lld -shared a b\n"
        assert (root / "amdgcn/bitcode/ocml.bc").read_bytes() == b"BC"
        assert (root / "home").is_dir()
    assert not root.exists()
    assert (libraries / "ocml.bc").exists()


def test_a_linker_behind_an_argument_gets_a_wrapper(tmp_path: Path) -> None:
    place = tmp_path / "it's a $place"
    place.mkdir()
    zig = program(place / "zig", 'printf "%s|" "$@"')
    with toolkit(linker(zig, "ld.lld"), Bitcode(None, "")) as root:
        ran = subprocess.run(
            [root / "llvm/bin/ld.lld", "a b", "$c"], capture_output=True, check=True
        )
        assert ran.stdout == b"ld.lld|a b|$c|"
        assert list((root / "amdgcn/bitcode").iterdir()) == []


def test_a_linker_that_fails_is_said_at_once(tmp_path: Path) -> None:
    bad = program(tmp_path / "ld.lld", "exit 5")
    with (
        pytest.raises(ToolchainError, match="exit code 5"),
        toolkit(linker(bad), Bitcode(None, "")),
    ):
        pass


def test_a_directory_where_nothing_may_run_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lld = program(tmp_path / "ld.lld", "true")

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(subprocess, "run", refuse)
    with (
        pytest.raises(ToolchainError, match="noexec") as caught,
        toolkit(linker(lld), Bitcode(None, "")),
    ):
        pass
    assert "TMPDIR" in str(caught.value.fix)


def test_facts_have_versions_and_digests_and_no_path(tmp_path: Path) -> None:
    facts = tools(tmp_path).facts()
    assert facts == (
        ("bitcode", (("sha256", "ef" * 32),)),
        ("flydsl", (("sha256", "cd" * 32), ("version", "0.5.0"))),
        (
            "linker",
            (("sha256", "ab" * 32), ("version", "LLD 20.1.2 (compatible with GNU linkers)")),
        ),
        ("numpy", (("version", "absent"),)),
        ("python", (("version", "3.11"),)),
        ("torch", (("version", "2.13.0+cpu"),)),
    )
    assert tools(tmp_path, "elsewhere").facts() == facts


def test_torch_and_numpy_are_identified_without_being_imported(tmp_path: Path) -> None:
    for name, version in (("torch", "2.9.1+rocm6.4"), ("numpy", "2.2.0")):
        (tmp_path / "site" / name).mkdir(parents=True)
        (tmp_path / "site" / name / "__init__.py").write_text("raise SystemExit('imported')\n")
        (tmp_path / "site" / name / "version.py").write_text(f"__version__ = {version!r}\n")
    tree = tmp_path / "site" / "flydsl"
    tree.mkdir()
    (tree / "__init__.py").write_text("__version__ = '0.5.0'\n")
    lld = program(tmp_path / "ld.lld", 'echo "LLD 20.1.2 (compatible with GNU linkers)"')
    script = (
        "import sys\nfrom mono_build.toolchain import identify\n"
        f"facts = dict(identify({{'PATH': {str(lld.parent)!r}}}).facts())\n"
        "print(facts['torch'], facts['numpy'], 'torch' in sys.modules, 'numpy' in sys.modules)\n"
    )
    path = f"{tmp_path / 'site'}{os.pathsep}{Path(__file__).parents[2]}"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "(('version', '2.9.1+rocm6.4'),) (('version', '2.2.0'),) False False\n"


@pytest.mark.parametrize(
    "pins",
    [
        Pins(),
        Pins(flydsl=">=0.4.2,<0.6", lld=">=18", kernels="==0.33.0", python="3.11"),
        Pins(flydsl="0.5.0", lld="20.1.2", kernels="vllm==0.33.0", python=">=3.10"),
    ],
)
def test_matching_pins_pass(tmp_path: Path, pins: Pins) -> None:
    check_pins(pins, tools(tmp_path), "0.33.0")


def test_every_mismatch_is_named_with_both_versions(tmp_path: Path) -> None:
    pins = Pins(flydsl="0.4.2", lld="<19", kernels="0.34.0", python="3.12")
    with pytest.raises(ToolchainError) as caught:
        check_pins(pins, tools(tmp_path), "0.33.0")
    assert caught.value.what == (
        "flydsl is 0.5.0, and the manifest pins 0.4.2; lld is 20.1.2, and the manifest pins <19; "
        "kernels is 0.33.0, and the manifest pins 0.34.0; python is 3.11, and the manifest pins 3.12"
    )


def test_a_pin_that_is_no_version_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither a version nor a specifier"):
        check_pins(Pins(flydsl="newest"), tools(tmp_path))
