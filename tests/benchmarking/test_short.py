"""The short benchmark: every backend beside GATConv, within its time."""

from __future__ import annotations

import pytest
import torch

from node2seq import Node2SeqError, ops
from node2seq.benchmarking import short
from node2seq.benchmarking.rows import BenchmarkRow
from node2seq.ops.eager import ranking

CPU = torch.device("cpu")


def test_the_short_benchmark_measures_every_backend_beside_gat(quick: None):
    said: list[str] = []
    found = short.short_benchmark(CPU, said.append)
    backends = short.runnable_backends(CPU)
    for size in short.SIZES:
        rows = [row for row in found.rows if row.graph == size.name]
        assert [row.case for row in rows] == ["GATConv", *["Node2SeqConv"] * 2 * len(backends)]
        assert {(row.backend, row.readout) for row in rows[1:]} == {
            (backend, readout) for backend in backends for readout in ("max", "mean")
        }
        assert all(row.base == "GATConv" and row.ratio and row.p50_ms for row in rows[1:])
        assert found.picks[size.name] in backends
    assert said[0].startswith("comparing ")


def test_what_there_is_no_time_for_is_said(quick: None):
    found = short.short_benchmark(CPU, seconds=0)
    assert {row.result for row in found.rows if row.case == "Node2SeqConv"} == {short.NO_TIME_LEFT}


def test_a_case_that_would_not_end_in_time_is_not_begun():
    def row(edges: int, **more) -> BenchmarkRow:
        return BenchmarkRow("short", "g", 10, edges, "Node2SeqConv", readout="max", backend="eager", **more)

    known = [row(100, p50_ms=10.0), row(1000, p50_ms=50.0), row(5000, result=short.NO_TIME_LEFT)]
    assert short._expected_seconds(row(10_000), known) == pytest.approx((short.LEAST + 1) * 0.5)
    assert short._expected_seconds(row(10_000), []) == 0.0


@pytest.mark.parametrize("backend", short.runnable_backends(CPU))
def test_backends_agree_with_the_reference(quick: None, backend: str):
    assert short.disagreements(backend, CPU) == []


def test_every_backend_of_this_device_is_found():
    found = short.runnable_backends(CPU)
    assert set(found) >= {"reference", "eager"}
    assert "auto" not in found
    assert set(found) <= set(ops.BACKEND_NAMES)


@pytest.mark.parametrize("part", ["output", "order", "gradient of x"])
def test_a_wrong_backend_is_noticed(quick: None, monkeypatch: pytest.MonkeyPatch, part: str):
    if part == "order":
        right = ranking.rank
        monkeypatch.setattr(ranking, "rank", lambda *given: right(*given).flip(0))
    else:
        right = ops.eager.convolve_sum

        def wrong(x, *given, **how):
            out = right(x, *given, **how)
            return out * 2 if part == "output" else out + (x - x.detach())[: out.size(0)]

        monkeypatch.setattr(ops.eager, "convolve_sum", wrong)
    found = short.disagreements("eager", CPU)
    assert any(line.startswith("eager, sum k=3: ") and line.endswith(part) for line in found)
    with pytest.raises(Node2SeqError, match=f"eager, sum k=3: .*{part}.*nothing is timed"):
        short.short_benchmark(CPU)
