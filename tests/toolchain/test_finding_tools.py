"""FlyDSL, linkers and device libraries in made-up places."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from mono_build.errors import ToolchainError
from mono_build.toolchain.bitcode import find_bitcode
from mono_build.toolchain.flydsl import find_flydsl, search_flydsl
from mono_build.toolchain.linker import find_linker, search_linker

EMPTY = hashlib.sha256().hexdigest()


def make_flydsl(site: Path, version: str = "0.5.0", library: bytes = b"\x7fELF native") -> Path:
    root = site / "flydsl"
    (root / "_mlir").mkdir(parents=True)
    (root / "__init__.py").write_text(f'raise SystemExit("imported")\n__version__ = "{version}"\n')
    (root / "_mlir" / "core.py").write_text("x = 1\n")
    (root / "_mlir" / "libFly.so.24").write_bytes(library)
    return root


def make_program(path: Path, text: str, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)
    return path


def make_lld(path: Path, version: str = "LLD 19.1.7 (compatible with GNU linkers)") -> Path:
    return make_program(path, f'[ "$1" = --version ] && echo "{version}"')


def test_flydsl_is_found_without_being_imported(tmp_path: Path) -> None:
    root = make_flydsl(tmp_path, "0.4.2")
    found = find_flydsl([str(tmp_path)])
    assert (found.root, found.version) == (root, "0.4.2")


@pytest.mark.parametrize("version", ["0.4.2", "0.5.0", "0.5.9", "0.5.0+rocm7"])
def test_supported_versions_are_taken(tmp_path: Path, version: str) -> None:
    make_flydsl(tmp_path, version)
    assert find_flydsl([str(tmp_path)]).version == version


@pytest.mark.parametrize(
    "version", ["0.3.1", "0.3.4.1", "0.4.1", "0.6", "0.6.0", "0.6.0.dev1", "x"]
)
def test_other_versions_are_refused_with_what_is_supported(tmp_path: Path, version: str) -> None:
    make_flydsl(tmp_path, version)
    with pytest.raises(ToolchainError) as caught:
        find_flydsl([str(tmp_path)])
    assert f"FlyDSL {version} is not supported" in caught.value.what
    assert "pip install 'flydsl>=0.4.2,<0.6'" in str(caught.value.fix)
    assert search_flydsl([str(tmp_path)]).unsupported


def test_no_flydsl_is_an_error_that_lists_the_places(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError) as caught:
        find_flydsl([str(tmp_path)])
    assert caught.value.what == "FlyDSL is not installed"
    assert str(tmp_path) in str(caught.value.where)
    assert caught.value.exit_code == 4


def test_flydsl_digest_depends_on_content_and_on_nothing_else(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    make_flydsl(first)
    root = make_flydsl(second)
    (root / "__pycache__").mkdir()
    (root / "__pycache__" / "x.cpython-311.pyc").write_bytes(b"cache")
    (root / "_mlir" / "core.pyi").write_text("x: int\n")
    digest = find_flydsl([str(first)]).digest
    assert find_flydsl([str(second)]).digest == digest
    (root / "_mlir" / "core.py").write_text("x = 2\n")
    assert find_flydsl([str(second)]).digest != digest


def test_same_flydsl_version_with_another_library_is_another_digest(tmp_path: Path) -> None:
    make_flydsl(tmp_path / "a")
    make_flydsl(tmp_path / "b", library=b"\x7fELF patched")
    make_flydsl(tmp_path / "c")
    (tmp_path / "c" / "flydsl.libs").mkdir()
    (tmp_path / "c" / "flydsl.libs" / "libzstd-1.so.1").write_bytes(b"zstd")
    digests = {find_flydsl([str(tmp_path / n)]).digest for n in "abc"}
    assert len(digests) == 3


def test_linkers_are_taken_in_order(tmp_path: Path) -> None:
    rocm_path, rocm, bin_, site = (tmp_path / n for n in ("named", "opt", "bin", "site"))
    environ = {"ROCM_PATH": str(rocm_path), "PATH": str(bin_)}
    zig = make_program(
        site / "ziglang" / "zig", '[ "$1 $2" = "ld.lld --version" ] && echo "LLD 22.1.8"'
    )

    def origin() -> tuple[str, str]:
        found = find_linker(environ, rocm=rocm, search=[str(site)])
        return found.origin, found.version

    assert origin() == ("ziglang", "LLD 22.1.8")
    assert find_linker(environ, rocm=rocm, search=[str(site)]).arguments == ("ld.lld",)
    assert find_linker(environ, rocm=rocm, search=[str(site)]).path == zig
    make_lld(bin_ / "ld.lld-9", "LLD 9.0.1")
    make_lld(bin_ / "ld.lld-18", "Debian LLD 18.1.3 (compatible with GNU linkers)")
    assert origin() == ("PATH", "Debian LLD 18.1.3 (compatible with GNU linkers)")
    make_lld(bin_ / "ld.lld", "LLD 17.0.0")
    assert origin() == ("PATH", "LLD 17.0.0")
    make_lld(rocm / "llvm/bin/ld.lld", "AMD LLD 20.0.0")
    assert origin() == ("rocm", "AMD LLD 20.0.0")
    make_lld(rocm_path / "llvm/bin/ld.lld", "AMD LLD 21.0.0")
    assert origin() == ("ROCM_PATH", "AMD LLD 21.0.0")


def test_the_release_is_read_from_the_version_line(tmp_path: Path) -> None:
    make_lld(tmp_path / "ld.lld", "Debian LLD 18.1.3 (compatible with GNU linkers)")
    assert find_linker({"PATH": str(tmp_path)}, rocm=tmp_path, search=[]).release == "18.1.3"


def test_every_place_is_kept_with_its_reason(tmp_path: Path) -> None:
    make_program(tmp_path / "a" / "ld.lld", "echo GNU ld 2.40")
    make_program(tmp_path / "b" / "ld.lld-15", "exit 3")
    make_program(tmp_path / "b" / "ld.lld-14", "true", 0o644)
    environ = {"PATH": f"{tmp_path}/a:{tmp_path}/b", "ROCM_PATH": f"{tmp_path}/none"}
    result = search_linker(environ, rocm=tmp_path / "opt", search=[])
    assert result.found is None
    assert [(p.where.removeprefix(f"{tmp_path}/"), p.outcome) for p in result.looked] == [
        ("none/llvm/bin/ld.lld", "absent"),
        ("opt/llvm/bin/ld.lld", "absent"),
        ("a/ld.lld", "is not LLD: GNU ld 2.40"),
        ("b/ld.lld-15", "--version failed with exit code 3"),
        ("b/ld.lld-14", "not executable"),
        ("Python package ziglang", "absent"),
    ]
    with pytest.raises(ToolchainError, match="no LLD was found") as caught:
        find_linker(environ, rocm=tmp_path / "opt", search=[])
    assert "apt install lld" in str(caught.value.fix)
    assert "a/ld.lld: is not LLD" in str(caught.value.where)


def test_a_linker_that_is_linked_to_or_moved_keeps_its_digest(tmp_path: Path) -> None:
    real = make_lld(tmp_path / "deep" / "lld-real")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "ld.lld").symlink_to(real)
    make_lld(tmp_path / "two" / "ld.lld")
    one, two = (
        find_linker({"PATH": f"{tmp_path}/{n}"}, rocm=tmp_path, search=[]) for n in ("one", "two")
    )
    assert one.digest == two.digest
    with (tmp_path / "two" / "ld.lld").open("a") as file:
        file.write("# same version, other content\n")
    assert find_linker({"PATH": f"{tmp_path}/two"}, rocm=tmp_path, search=[]).digest != one.digest


def test_bitcode_is_digested_by_name_and_content(tmp_path: Path) -> None:
    for name, content in (("a", b"BC1"), ("b", b"BC1"), ("c", b"BC2")):
        directory = tmp_path / name / "amdgcn" / "bitcode"
        directory.mkdir(parents=True)
        (directory / "ocml.bc").write_bytes(content)
        (directory / "notes.txt").write_text(name)
    a, b, c = (find_bitcode({"ROCM_PATH": f"{tmp_path}/{n}"}, rocm=tmp_path) for n in "abc")
    assert a.digest == b.digest != c.digest
    assert a.directory == tmp_path / "a" / "amdgcn" / "bitcode"


def test_no_bitcode_is_the_digest_of_nothing(tmp_path: Path) -> None:
    found = find_bitcode({}, rocm=tmp_path)
    assert (found.directory, found.digest) == (None, EMPTY)
