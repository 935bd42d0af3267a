"""Where kernels come from: installations, trees, wheels and fetched wheels, all made up."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from kernel_trees import LAYER, METADATA, MONO, make_wheel

from mono_build.errors import NotFound, ToolchainError, UsageError
from mono_build.sources.cache import cache_directory
from mono_build.sources.fetch import pip_download
from mono_build.sources.kernels import KernelSource, resolve_kernels


def make_tree(root: Path, version: str | None = "0.33.0") -> Path:
    file = root / LAYER
    file.parent.mkdir(parents=True)
    file.write_text("x = 1\n")
    (root / "vllm/__init__.py").write_text("raise SystemExit('engine started')\n")
    if version:
        (root / "vllm/_version.py").write_text(f"__version__ = version = {version!r}\n")
    return root


def files_of(root: Path) -> list[str]:
    return sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())


def never(requirement: str, _directory: Path) -> None:
    raise AssertionError(f"{requirement} is fetched")


class Index:
    """A package index with one wheel, which counts how often it was asked."""

    def __init__(self, wheel: Path) -> None:
        self.wheel = wheel
        self.asked: list[str] = []

    def __call__(self, requirement: str, directory: Path) -> None:
        self.asked.append(requirement)
        (directory / self.wheel.name).write_bytes(self.wheel.read_bytes())


def test_an_installation_is_found_without_being_imported(tmp_path: Path) -> None:
    make_tree(tmp_path)
    source = resolve_kernels("installed", {}, search=[str(tmp_path)], packages=[MONO])
    assert source == KernelSource("vllm", tmp_path, "0.33.0", "installed")
    assert source.facts() == (("package", "vllm"), ("version", "0.33.0"))


def test_an_installation_version_comes_from_its_metadata(tmp_path: Path) -> None:
    make_tree(tmp_path, version=None)
    info = tmp_path / "vllm-0.34.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA.format("0.34.1"))
    assert resolve_kernels(None, {}, search=[str(tmp_path)]).version == "0.34.1"


def test_an_editable_installation_is_followed(tmp_path: Path) -> None:
    site, checkout = tmp_path / "site", make_tree(tmp_path / "my checkout")
    info = site / "vllm-0.33.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(METADATA.format("0.33.0"))
    url = (tmp_path / "my checkout").as_uri()
    (info / "direct_url.json").write_text(json.dumps({"url": url, "dir_info": {"editable": True}}))
    source = resolve_kernels("installed", {}, search=[str(site)], packages=[MONO])
    assert (source.root, source.origin) == (checkout, "installed")


def test_an_import_hook_of_an_editable_installation_is_asked(tmp_path: Path) -> None:
    checkout = make_tree(tmp_path)
    script = (
        "import sys, importlib.util as u\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        place = {str(checkout / 'vllm')!r}\n"
        "        if name == 'vllm':\n"
        "            return u.spec_from_file_location(name, place + '/__init__.py',\n"
        "                submodule_search_locations=[place])\n"
        "sys.meta_path.append(Finder())\n"
        "from mono_build.sources import resolve_kernels\n"
        "print(resolve_kernels('installed', {}).root, 'vllm' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{checkout} False\n"


def test_nothing_installed_is_an_error_only_when_it_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="vllm is not installed") as caught:
        resolve_kernels("installed", {}, search=[str(tmp_path)])
    assert "vllm==0.33.0" in str(caught.value.fix)
    index = Index(make_wheel(tmp_path / "index"))
    source = resolve_kernels(None, {}, tmp_path / "cache", search=[], fetch=index)
    assert (source.version, source.origin, index.asked) == ("0.33.0", "wheel", ["vllm==0.33.0"])


@pytest.mark.parametrize("given", ["", "vllm"])
def test_a_tree_may_be_named_by_its_root_or_its_package(tmp_path: Path, given: str) -> None:
    make_tree(tmp_path)
    source = resolve_kernels(str(tmp_path / given), {}, packages=[MONO])
    assert source == KernelSource("vllm", tmp_path, "0.33.0", "tree")


def test_a_tree_that_does_not_say_its_version_is_unknown(tmp_path: Path) -> None:
    make_tree(tmp_path, version=None)
    assert resolve_kernels(str(tmp_path), {}).version == "unknown"


def test_only_model_sources_are_taken_out_of_a_wheel(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    source = resolve_kernels(str(wheel), {}, tmp_path / "cache", packages=[MONO])
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert source == KernelSource(
        "vllm", tmp_path / "cache/kernels" / digest, "0.33.0", "wheel", digest
    )
    assert files_of(source.root) == [".mono-build.json", LAYER]
    assert source.facts() == (("package", "vllm"), ("version", "0.33.0"), ("wheel_sha256", digest))


def test_a_fetched_wheel_is_kept_and_reused(tmp_path: Path) -> None:
    index = Index(make_wheel(tmp_path / "index"))
    first = resolve_kernels("vllm==0.33.0", {}, tmp_path / "cache", fetch=index)
    again = resolve_kernels("vllm==0.33.0", {}, tmp_path / "cache", fetch=never)
    assert first == again
    assert (tmp_path / "cache/wheels" / index.wheel.name).is_file()
    assert first.wheel_sha256 == hashlib.sha256(index.wheel.read_bytes()).hexdigest()


def test_a_wheel_that_was_put_into_the_cache_needs_no_network(tmp_path: Path) -> None:
    make_wheel(tmp_path / "cache" / "wheels")
    assert resolve_kernels("vllm==0.33.0", {}, tmp_path / "cache", fetch=never).version == "0.33.0"


@pytest.mark.parametrize("damage", ["changed", "removed", "added", "listing"])
def test_damaged_sources_in_the_cache_are_taken_out_again(tmp_path: Path, damage: str) -> None:
    index = Index(make_wheel(tmp_path / "index"))
    source = resolve_kernels("vllm==0.33.0", {}, tmp_path / "cache", fetch=index)
    layer = source.root / LAYER
    if damage == "changed":
        layer.write_text("x = 2\n")
    elif damage == "removed":
        layer.unlink()
    elif damage == "added":
        layer.with_name("ops.py").write_text("")
    else:
        (source.root / ".mono-build.json").write_text("{")
    resolve_kernels("vllm==0.33.0", {}, tmp_path / "cache", fetch=never)
    assert layer.read_text() == "x = 1\n"
    assert files_of(source.root) == [".mono-build.json", LAYER]


def test_a_damaged_wheel_in_the_cache_is_reported_and_fetched_again(tmp_path: Path) -> None:
    index = Index(make_wheel(tmp_path / "index"))
    source = resolve_kernels("vllm==0.33.0", {}, tmp_path / "cache", fetch=index)
    kept = tmp_path / "cache/wheels" / index.wheel.name
    kept.write_bytes(kept.read_bytes()[:100])
    (source.root / LAYER).unlink()
    said: list[str] = []
    again = resolve_kernels("vllm==0.33.0", {}, tmp_path / "cache", fetch=index, report=said.append)
    assert again == source
    assert index.asked == ["vllm==0.33.0", "vllm==0.33.0"]
    assert f"expected sha256 {source.wheel_sha256}" in said[0]


def test_a_read_only_cache_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index(make_wheel(tmp_path / "index"))
    resolve_kernels("vllm==0.33.0", {}, tmp_path / "cache", fetch=index)

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(Path, "write_text", refuse)
    assert resolve_kernels("vllm==0.33.0", {}, tmp_path / "cache", fetch=never).version == "0.33.0"


def test_two_builders_fetch_once(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "index")
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom mono_build.sources import resolve_kernels\n"
        f"wheel, base = Path({str(wheel)!r}), Path({str(tmp_path)!r})\n"
        "def fetch(requirement, directory):\n"
        "    with (base / 'asked').open('a') as f: f.write('x')\n"
        "    time.sleep(0.3)\n"
        "    (directory / wheel.name).write_bytes(wheel.read_bytes())\n"
        "print(resolve_kernels('vllm==0.33.0', {}, base / 'cache', fetch=fetch).wheel_sha256)\n"
    )
    builders = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) for _ in range(3)
    ]
    said = {builder.communicate()[0] for builder in builders}
    assert said == {hashlib.sha256(wheel.read_bytes()).hexdigest().encode() + b"\n"}
    assert (tmp_path / "asked").read_text() == "x"


def test_what_a_killed_builder_left_is_cleaned_up(tmp_path: Path) -> None:
    wheels = tmp_path / "cache" / "wheels"
    left = wheels / ".vllm-0.33.0.staging"
    left.mkdir(parents=True)
    (left / "vllm-0.33.0-half.whl").write_bytes(b"PK")
    index = Index(make_wheel(tmp_path / "index"))
    assert resolve_kernels("vllm==0.33.0", {}, tmp_path / "cache", fetch=index).version == "0.33.0"
    assert not left.exists()


def test_without_a_network_the_ways_out_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(ToolchainError, match="could not be fetched") as caught:
        pip_download("vllm==0.33.0", tmp_path)
    fix = str(caught.value.fix)
    assert "--kernels the file" in fix
    assert "MONO_CACHE" in fix
    assert "--kernels installed" in fix


def test_a_wheel_without_mono_kernels_is_refused_with_what_it_has(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    with pytest.raises(ToolchainError) as caught:
        resolve_kernels(
            str(wheel), {}, tmp_path / "c", packages=[MONO, "vllm.models.kimi_k3.amd.mono"]
        )
    assert caught.value.what == (
        "vllm 0.33.0 (wheel) lacks the kernel packages vllm.models.kimi_k3.amd.mono; "
        "it has vllm/models/deepseek_v41/amd/mono"
    )


def test_a_tree_without_any_kernels_says_so(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    with pytest.raises(ToolchainError, match="it has no mono kernels and no vllm/models"):
        resolve_kernels(str(tmp_path), {}, packages=[MONO])


def test_files_that_are_no_wheels_are_refused(tmp_path: Path) -> None:
    text = tmp_path / "vllm-0.33.0.whl"
    text.write_text("not a zip")
    with pytest.raises(ToolchainError, match="not a readable wheel"):
        resolve_kernels(str(text), {}, tmp_path / "c")
    with zipfile.ZipFile(text, "w") as archive:
        archive.writestr(LAYER, "x = 1\n")
    with pytest.raises(ToolchainError, match="no wheel metadata"):
        resolve_kernels(str(text), {}, tmp_path / "c")
    other = make_wheel(tmp_path, **{"a.dist-info/METADATA": "x"})
    data = other.read_bytes()
    other.write_bytes(data[: len(data) // 2])
    with pytest.raises(ToolchainError, match="not a readable wheel"):
        resolve_kernels(str(other), {}, tmp_path / "c")


@pytest.mark.parametrize(
    "name", ["../evil.py", "/etc/evil.py", "vllm/models/../../../evil.py", "a\\b.py"]
)
def test_unsafe_names_are_refused_with_nothing_kept(tmp_path: Path, name: str) -> None:
    wheel = make_wheel(tmp_path / "w", **{name: "x = 1\n"})
    with pytest.raises(ToolchainError, match="unsafe entry"):
        resolve_kernels(str(wheel), {}, tmp_path / "c")
    assert [p for p in files_of(tmp_path) if p.endswith(".py")] == []


def test_links_in_a_wheel_are_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    link = zipfile.ZipInfo("vllm/models/link.py")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(ToolchainError, match="unsafe entry"):
        resolve_kernels(str(wheel), {}, tmp_path / "c")


def test_a_file_that_inflates_without_end_is_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, **{"vllm/models/bomb.py": "#" * (17 << 20)})
    assert wheel.stat().st_size < 100_000
    with pytest.raises(ToolchainError, match="far too large"):
        resolve_kernels(str(wheel), {}, tmp_path / "c")


def test_what_is_not_understood_is_a_usage_error(tmp_path: Path) -> None:
    for spec in ("newest", "vllm>=0.33", "torch==2.0"):
        with pytest.raises(UsageError):
            resolve_kernels(spec, {}, tmp_path)
    with pytest.raises(NotFound, match="no wheel or tree"):
        resolve_kernels(str(tmp_path / "gone.whl"), {}, tmp_path)


def test_the_cache_lies_where_the_environment_says(tmp_path: Path) -> None:
    environ = {
        "MONO_CACHE": f"{tmp_path}/m",
        "XDG_CACHE_HOME": f"{tmp_path}/x",
        "HOME": f"{tmp_path}/h",
    }
    assert cache_directory(environ) == tmp_path / "m"
    del environ["MONO_CACHE"]
    assert cache_directory(environ) == tmp_path / "x/mono-build"
    environ["XDG_CACHE_HOME"] = "relative"
    assert cache_directory(environ) == tmp_path / "h/.cache/mono-build"


def test_without_a_home_the_cache_is_temporary_and_that_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    directory = cache_directory({"TMPDIR": str(tmp_path)}, said.append)
    assert directory.parent == tmp_path
    assert directory.stat().st_mode & 0o777 == 0o700
    assert said == [
        f"HOME is not set: fetched kernel sources are kept in {directory}; set MONO_CACHE to choose"
    ]
    (tmp_path / "file").write_text("")
    cache_directory({"TMPDIR": str(tmp_path), "HOME": f"{tmp_path}/file"}, said.append)
    assert f"{tmp_path}/file/.cache/mono-build cannot be written" in said[1]


def test_a_chosen_cache_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ToolchainError, match="MONO_CACHE"):
        cache_directory({"MONO_CACHE": f"{tmp_path}/file"})
