"""The fused kernels: through Triton's interpreter on a CPU or on the GPU itself, and compiled for sm_90."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from node2seq import Node2SeqConv, Node2SeqError, ops

HERE = Path(__file__).parent
LARGE = [
    "building, real blocks",
    "large hub",
    "attention, real blocks",
    "diverged, real blocks",
    "equal scores, real blocks",
    "capture",
    "large offsets",
]
NAMES = [
    "plan",
    "plan of many rows",
    "building",
    "building of nothing",
    "rank",
    "score",
    *(f"{readout} k={kernel_size}" for readout in ("max", "sum") for kernel_size in (1, 2, 3, 5, 10, 20)),
    "scored sum",
    "own rows",
    "own rows, order given",
    "own rows of runs",
    "many channels",
    "aggregate",
    "attention",
    "largest",
    "sparse rows",
    "order kept",
    "runs",
    "nan and ties",
    "diverged",
    "equal scores",
    "bounds",
    "launch",
    "empty",
    "layer",
    "compiled",
    "determinism",
    "choice",
    *(LARGE if torch.cuda.is_available() else []),
]


def run(script: str, **environment: str) -> dict:
    """What a script in a process of its own found: Triton decides at import whether it interprets."""
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, str(HERE / script)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE.parent), **environment},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return run("kernel_checks.py", **({} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}))


@pytest.mark.slow
def test_every_check_ran(found):
    assert list(found) == NAMES


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_kernels(found, name):
    assert not found[name], found[name]


@pytest.mark.slow
def test_every_kernel_compiles_for_sm_90(tmp_path):
    found = run("kernel_compile.py", TRITON_CACHE_DIR=str(tmp_path))
    assert len(found["kernels"]) == 31
    assert found["compiled"] == found["kernels"]
    assert not found["fused"]  # or threads round the same sum differently
    assert not found["confused"]  # or a kernel that was compiled for other arguments is started


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU runs the kernels")
def test_asked_for_without_a_gpu_is_an_error():
    conv = Node2SeqConv(3, 3, backend="triton")
    with pytest.raises(Node2SeqError, match=r"backend='triton'.*Use backend='auto'"):
        conv(torch.ones(2, 3), torch.tensor([[0], [1]]))
    assert ops.choose_backend("auto", torch.ones(2)) is ops.BACKENDS["eager"]


@pytest.mark.slow
def test_triton_is_loaded_late():
    code = "import sys, node2seq.nn.models; print('node2seq.ops.triton' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"
