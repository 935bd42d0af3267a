from __future__ import annotations

from pathlib import Path

import pytest
from store_kit import as_other_user

from mono_build.store.default import default_store
from mono_runtime.errors import StoreError


def test_without_mono_store_the_users_cache_is_meant() -> None:
    home = {"HOME": "/home/u"}
    assert default_store(home) == Path("/home/u/.cache/mono-build/store")
    assert default_store({**home, "MONO_STORE": ""}) == Path("/home/u/.cache/mono-build/store")
    assert default_store({**home, "XDG_CACHE_HOME": "/c"}) == Path("/c/mono-build/store")
    # The XDG specification has relative paths ignored.
    relative = {**home, "XDG_CACHE_HOME": "c"}
    assert default_store(relative) == Path("/home/u/.cache/mono-build/store")


def test_builds_go_to_the_last_writable_store(public_dir: Path) -> None:
    image, shared, user = (public_dir / name for name in ("image", "shared", "user"))
    image.mkdir()
    shared.mkdir()
    environ = {"MONO_STORE": f"{image}:{shared}:{user / 'new'}:", "HOME": "/home/u"}

    def chosen() -> str:
        return str(default_store(environ))

    public_dir.chmod(0o755)
    shared.chmod(0o777)
    image.chmod(0o555)
    public_dir.chmod(0o555)
    assert as_other_user(chosen) == str(shared)
    shared.chmod(0o555)
    assert as_other_user(chosen) == "/home/u/.cache/mono-build/store"
    public_dir.chmod(0o755)
    assert default_store(environ) == user / "new"


def test_a_file_is_no_place_to_build_into(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environ = {"MONO_STORE": f"{tmp_path}:{tmp_path / 'file'}:{tmp_path / 'file' / 'x'}"}
    assert default_store(environ) == tmp_path


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_without_home_the_error_says_what_to_name(environ: dict[str, str]) -> None:
    with pytest.raises(StoreError) as caught:
        default_store(environ)
    assert caught.value.fix == "name a directory with --store DIR or MONO_STORE"
