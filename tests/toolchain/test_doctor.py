"""What doctor says about machines that have nothing, something and everything."""

from __future__ import annotations

import json
from pathlib import Path

from mono_build.doctor import Item, Report, examine


def program(path: Path, text: str = "true") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def package(site: Path, name: str, version: str) -> None:
    (site / name).mkdir(parents=True)
    (site / name / "__init__.py").write_text(f"__version__ = {version!r}\nraise SystemExit\n")


def items(report: Report) -> dict[str, Item]:
    return {item.name: item for item in report.items}


def bare(tmp_path: Path) -> Report:
    environ = {"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "bin")}
    nowhere = tmp_path / "nowhere"
    return examine(environ, search=[str(tmp_path / "site")], rocm=nowhere, topology=nowhere)


def test_a_machine_with_nothing_is_told_how_to_get_it(tmp_path: Path) -> None:
    report = bare(tmp_path)
    found = items(report)
    assert not report.ready
    assert {name: item.state for name, item in found.items()} == {
        "python": "ok",
        "flydsl": "missing",
        "torch": "missing",
        "numpy": "missing",
        "linker": "missing",
        "bitcode": "optional",
        "kernels": "optional",
        "aiter": "ok",
        "cache": "ok",
        "llvm-objdump": "optional",
        "llvm-readelf": "optional",
        "gpu": "optional",
    }
    for name in ("flydsl", "torch", "numpy", "linker", "bitcode", "kernels", "llvm-objdump"):
        assert found[name].fix, name
        assert found[name].looked, name
    assert "pip install 'flydsl>=0.4.2,<0.6'" in str(found["flydsl"].fix)
    assert "apt install lld" in str(found["linker"].fix)
    assert "fetches the wheel of vllm==0.33.0" in str(found["kernels"].note)


def test_a_complete_machine_is_ready(tmp_path: Path) -> None:
    site, rocm = tmp_path / "site", tmp_path / "rocm"
    for name, version in (("flydsl", "0.5.0"), ("torch", "2.13.0"), ("numpy", "2.4.6")):
        package(site, name, version)
    layer = site / "vllm/models/deepseek_v41/amd/mono/layer.py"
    layer.parent.mkdir(parents=True)
    layer.write_text("")
    (site / "vllm/_version.py").write_text("__version__ = '0.33.0'\n")
    program(rocm / "llvm/bin/ld.lld", "echo LLD 20.0.0")
    program(rocm / "llvm/bin/llvm-objdump")
    (rocm / "amdgcn/bitcode").mkdir(parents=True)
    (rocm / "amdgcn/bitcode/ocml.bc").write_bytes(b"BC")
    node = tmp_path / "nodes/1"
    node.mkdir(parents=True)
    (node / "properties").write_text("gfx_target_version 90500\n")
    report = examine(
        {"HOME": str(tmp_path), "PATH": "", "FLYDSL_DUMP_IR": "1"},
        packages=["vllm.models.deepseek_v41.amd.mono"],
        store=tmp_path / "new" / "store",
        search=[str(site)],
        rocm=rocm,
        topology=tmp_path / "nodes",
    )
    found = items(report)
    assert report.ready
    assert found["flydsl"].version == "0.5.0"
    assert len(str(found["flydsl"].digest)) == 64
    assert found["torch"].where == str(site / "torch")
    assert found["linker"].where == str(rocm / "llvm/bin/ld.lld")
    assert found["bitcode"].where == str(rocm / "amdgcn/bitcode")
    assert found["kernels"].version == "0.33.0"
    assert found["gpu"].version == "gfx950"
    assert found["store"].note == "it will be made by the first build"
    assert found["llvm-objdump"].state == "ok"
    assert report.notes == ("FLYDSL_DUMP_IR is set and ignored: builds do not depend on it",)


def test_an_unsupported_flydsl_is_told_from_a_missing_one(tmp_path: Path) -> None:
    package(tmp_path / "site", "flydsl", "0.3.1")
    item = items(bare(tmp_path))["flydsl"]
    assert item.state == "unsupported"
    assert item.looked[0].where == str(tmp_path / "site" / "flydsl")
    assert "FlyDSL 0.3.1 is not supported" in str(item.note)


def test_the_unrelated_aiter_is_pointed_out(tmp_path: Path) -> None:
    package(tmp_path / "site", "aiter", "0.13")
    item = items(bare(tmp_path))["aiter"]
    assert "not AMD's AITER" in item.looked[0].outcome
    assert "stand-ins" in str(item.note)


def test_kernels_without_what_a_family_needs_are_reported_not_raised(tmp_path: Path) -> None:
    package(tmp_path / "site", "vllm", "0.10")
    nowhere = tmp_path / "nowhere"
    environ = {"HOME": str(tmp_path), "PATH": ""}
    report = examine(
        environ,
        packages=["vllm.models.deepseek_v41.amd.mono"],
        search=[str(tmp_path / "site")],
        rocm=nowhere,
        topology=nowhere,
    )
    item = items(report)["kernels"]
    assert item.state == "missing"
    assert "lacks the kernel packages vllm.models.deepseek_v41.amd.mono" in str(item.note)


def test_a_store_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    nowhere = tmp_path / "nowhere"
    environ = {"HOME": str(tmp_path), "PATH": ""}
    report = examine(environ, store=tmp_path / "file", search=[], rocm=nowhere, topology=nowhere)
    item = items(report)["store"]
    assert (item.state, item.looked[0].outcome) == ("missing", "cannot be written")


def test_the_report_is_json(tmp_path: Path) -> None:
    value = json.loads(json.dumps(bare(tmp_path).to_json()))
    assert value["ready"] is False
    assert value["items"][4]["name"] == "linker"
    assert value["items"][4]["looked"][0] == {"where": "ROCM_PATH", "outcome": "not set"}
