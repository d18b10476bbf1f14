"""The selection and dropout of the GPU backend: through Triton's interpreter, or on the GPU itself."""

import pytest
import torch
from test_triton import run

NAMES = [
    "select",
    "runs",
    "odd scores",
    "too many",
    "empty",
    "gradients",
    "dropout",
    *(["large", "capture"] if torch.cuda.is_available() else []),
]


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    environment = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    return run("kernel_checks_select.py", **environment)


@pytest.mark.slow
def test_every_check_ran(found):
    assert list(found) == NAMES


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_kernels(found, name):
    assert not found[name], found[name]


@pytest.mark.slow
def test_every_kernel_compiles_for_sm_90(tmp_path):
    found = run("kernel_compile_select.py", TRITON_CACHE_DIR=str(tmp_path))
    assert len(found["kernels"]) == 5
    assert found["compiled"] == found["kernels"]
    assert not found["fused"]  # or threads round the same sum differently
    assert not found["confused"]  # or a kernel that was compiled for other arguments is started
