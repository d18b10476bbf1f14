"""Each backend is verified before it is timed."""

from __future__ import annotations

import pytest
import torch

from node2seq import Node2SeqError, ops
from node2seq.benchmarking import agreement, short

CPU = torch.device("cpu")


@pytest.mark.parametrize("backend", agreement.runnable_backends(CPU))
def test_backends_agree_with_the_reference(quick: None, backend: str):
    assert agreement.disagreements(backend, CPU) == []


def test_every_backend_of_this_device_is_found():
    found = agreement.runnable_backends(CPU)
    assert set(found) >= {"reference", "eager"}
    assert "auto" not in found
    assert set(found) <= set(ops.BACKEND_NAMES)


@pytest.mark.parametrize("part", ["output", "order", "gradient of x"])
def test_a_wrong_backend_is_noticed(quick: None, monkeypatch: pytest.MonkeyPatch, part: str):
    if part == "order":
        right = ops.eager.rank
        monkeypatch.setattr(ops.eager, "rank", lambda *given: right(*given).flip(0))
    else:
        right = ops.eager.convolve_sum

        def wrong(x, *given):
            out = right(x, *given)
            return out * 2 if part == "output" else out + (x - x.detach())[: out.size(0)]

        monkeypatch.setattr(ops.eager, "convolve_sum", wrong)
    found = agreement.disagreements("eager", CPU)
    assert any(line.startswith("eager, sum k=3: ") and line.endswith(part) for line in found)
    with pytest.raises(Node2SeqError, match=f"eager, sum k=3: .*{part}.*nothing is timed"):
        short.short_benchmark(CPU)
