"""How long a step takes, and how much memory it adds."""

from __future__ import annotations

import pytest
import torch

from node2seq.benchmarking import layers

CPU = torch.device("cpu")


def test_peak_memory_is_what_a_step_adds():
    size = 64 * 2**20
    found = layers.peak_bytes(lambda: torch.ones(size // 4).sum(), CPU)
    assert found is not None
    assert found == pytest.approx(size, rel=0.2)


def test_running_out_of_memory_is_a_result():
    assert layers.measure(lambda: torch.empty(2**58, dtype=torch.uint8), CPU, seconds=0) is None

    def wrong() -> None:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        layers.measure(wrong, CPU, seconds=0)


def test_a_step_is_repeated_as_often_as_told():
    calls: list[int] = []
    found = layers.measure(lambda: calls.append(0), CPU, seconds=0, least=5)
    assert found is not None
    assert len(calls) == 2 + 5  # two that do not count
    assert 0 <= found.p20_ms <= found.p50_ms <= found.p80_ms
    calls.clear()
    layers.measure(lambda: calls.append(0), CPU, seconds=60, most=8)
    assert len(calls) == 2 + 8
