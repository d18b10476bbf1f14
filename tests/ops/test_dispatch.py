"""Which backend runs where."""

import subprocess
import sys

import pytest
import torch

from node2seq import Node2SeqConv, Node2SeqError, ops


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU runs the kernels")
def test_triton_asked_for_without_a_gpu_is_an_error():
    conv = Node2SeqConv(3, 3, backend="triton")
    with pytest.raises(Node2SeqError, match=r"backend='triton'.*Use backend='auto'"):
        conv(torch.ones(2, 3), torch.tensor([[0], [1]]))
    assert ops.choose_backend("auto", torch.ones(2)).__name__ != "node2seq.ops.triton"


@pytest.mark.slow
def test_triton_is_loaded_late():
    code = "import sys, node2seq.nn.models; print('node2seq.ops.triton' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"
