"""Every kernel compiled for sm_90 (H100, H200), without a GPU: the interpreter hides what fails there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels need Triton: pip install triton")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What was compiled, in a process of its own: Triton decides at import whether it interprets."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton"))}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("kernel_compile.py"))],
        capture_output=True,
        text=True,
        env={name: value for name, value in environment.items() if name != "TRITON_INTERPRET"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_every_kernel_compiles(found: dict[str, list[str]]):
    assert len(found["kernels"]) == 47
    assert found["compiled"] == found["kernels"]


def test_no_product_is_fused_with_an_addition(found: dict[str, list[str]]):
    """Or threads round the same sum differently."""
    assert not found["fused"]


def test_no_kernel_is_taken_for_one_of_other_arguments(found: dict[str, list[str]]):
    """Or a kernel that was compiled for other arguments is started."""
    assert not found["confused"]
