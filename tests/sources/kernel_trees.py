"""Made-up kernel packages, and running code with the import hook in an interpreter of its own."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MONO = "vllm.models.deepseek_v41.amd.mono"
LAYER = "vllm/models/deepseek_v41/amd/mono/layer.py"
METADATA = "Metadata-Version: 2.1\nName: vllm\nVersion: {}\n\nText\n"
BASE = "vllm/models/fam/amd/mono"
PACKAGE = "vllm.models.fam.amd.mono"
STOP = "raise SystemExit('engine started')\n"
AITER = {
    "buffer_ops.py": "def buffer_load(): ...\ndef buffer_store(): ...\n"
    "def create_buffer_resource_from_addr(): ...\n",
    "dpp_utils.py": "def update_dpp_i32(): ...\n",
    "kernels_common.py": "from aiter.ops.flydsl.kernels import near\n"
    "def kernel_signature(**p): return 'real'\n",
    "near.py": "",
}


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def make_kernels(root: Path, **more: str) -> Path:
    return write(
        root,
        {
            "vllm/__init__.py": STOP,
            "vllm/config.py": STOP,
            "vllm/models/__init__.py": STOP,
            "vllm/models/fam/__init__.py": STOP,
            "vllm/models/fam/amd/__init__.py": STOP,
            f"{BASE}/__init__.py": "",
            f"{BASE}/layer.py": f"from {PACKAGE}.common import ops\nfrom . import plan\n",
            f"{BASE}/plan.py": "SIZE = 3\n",
            f"{BASE}/unused.py": "",
            f"{BASE}/common/__init__.py": "",
            f"{BASE}/common/ops.py": "from aiter.ops.flydsl.kernels.kernels_common import kernel_signature\n",
            **more,
        },
    )


def make_wheel(
    directory: Path, version: str = "0.33.0", layer: str = "x = 1\n", **extra: str
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    wheel = directory / f"vllm-{version}-cp38-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("vllm/__init__.py", "raise SystemExit('engine started')\n")
        archive.writestr("vllm/_C.abi3.so", "ELF")
        archive.writestr(LAYER, layer)
        archive.writestr("vllm/models/deepseek_v41/amd/mono/README.md", "text")
        archive.writestr(f"vllm-{version}.dist-info/METADATA", METADATA.format(version))
        for name, text in extra.items():
            archive.writestr(name, text)
    return wheel


def make_aiter(root: Path, **more: str) -> Path:
    files = {f"aiter/ops/flydsl/kernels/{name}": text for name, text in AITER.items()}
    parents = ("aiter", "aiter/ops", "aiter/ops/flydsl", "aiter/ops/flydsl/kernels")
    return write(root, {**files, **{f"{p}/__init__.py": STOP for p in parents}, **more})


def run(root: Path, body: str, *path: Path, extra: Sequence[str] = ()) -> Any:
    """What ``body`` leaves in ``result``, run with the hook installed; ``path`` comes first.

    The modules ``extra`` are imported before the hook is there, as a family's module is.
    """
    script = (
        "import json, sys\nfrom pathlib import Path\n"
        + "".join(f"import {name}\n" for name in extra)
        + "from mono_build.sources import KernelSource, find_helpers, kernel_importer\n"
        f"source = KernelSource('vllm', Path({str(root)!r}), '1', 'tree')\n"
        f"hook = kernel_importer(source, [{PACKAGE!r}], find_helpers(), {tuple(extra)!r})\n"
        f"result = None\n{body}\nprint(json.dumps(result))\n"
    )
    repository = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(map(str, [*path, repository])), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
