"""Every kernel compiled for sm_90 (H100, H200), without a GPU: the interpreter hides what fails there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels need Triton: pip install triton")


def test_every_kernel_compiles(tmp_path: Path):
    """In a process of its own, as Triton decides at import whether it interprets; once: it takes a minute."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("kernel_compile.py"))],
        capture_output=True,
        text=True,
        env={name: value for name, value in environment.items() if name != "TRITON_INTERPRET"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[str]] = json.loads(done.stdout)
    assert len(found["kernels"]) == 49
    assert found["compiled"] == found["kernels"]
    assert not found["fused"], "a product is fused with an addition: threads would round a sum differently"
    assert not found["confused"], "a kernel that was compiled for other arguments would be started"
