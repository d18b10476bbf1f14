"""Measuring: no figure of a wrong backend, the memory that a step takes, and the short benchmark."""

from __future__ import annotations

import pytest
import torch

from node2seq import Node2SeqError, ops
from node2seq.benchmarking import agreement, layers, short, timing
from node2seq.benchmarking.graphs import Size, power_law
from node2seq.benchmarking.layers import NOT_COMPILED, OUT_OF_MEMORY, LayerBenchmark, gather_bytes

CPU = torch.device("cpu")
TINY = (Size("tiny", 40, 200), Size("small", 80, 600))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same benchmark on small graphs, without repeats."""
    monkeypatch.setattr(short, "SIZES", TINY)
    monkeypatch.setattr(short, "SECONDS_A_CASE", 0.0)
    monkeypatch.setattr(agreement, "EDGES", 1_500)
    monkeypatch.setattr(agreement, "NODES", 120)


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


def test_peak_memory_is_what_a_step_adds():
    size = 64 * 2**20
    found = timing.peak_bytes(lambda: torch.ones(size // 4).sum(), CPU)
    assert found is not None
    assert found == pytest.approx(size, rel=0.2)


def test_running_out_of_memory_is_a_result():
    assert timing.measure(lambda: torch.empty(2**58, dtype=torch.uint8), CPU, seconds=0) is None

    def wrong() -> None:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        timing.measure(wrong, CPU, seconds=0)


def test_a_step_is_repeated_as_often_as_told():
    calls: list[int] = []
    found = timing.measure(lambda: calls.append(0), CPU, seconds=0, least=5)
    assert found is not None
    assert len(calls) == 2 + 5  # two that do not count
    assert 0 <= found.p20_ms <= found.p50_ms <= found.p80_ms
    calls.clear()
    timing.measure(lambda: calls.append(0), CPU, seconds=60, most=8)
    assert len(calls) == 2 + 8


def test_graphs_are_as_large_as_told_distinct_and_repeatable():
    edges = power_law(100, 900, CPU)
    assert edges.shape == (2, 900)
    assert edges.unique(dim=1).shape == (2, 900)
    assert torch.equal(edges, power_law(100, 900, CPU))
    assert not torch.equal(edges, power_law(100, 900, CPU, seed=1))
    assert torch.bincount(edges[1]).max() > 3 * 9  # a hub


def test_gathers_grow_with_the_kernel_for_the_maximum_alone():
    assert gather_bytes("max", 3, 10, channels=2) == 6 * 10 * 2 * 4
    assert gather_bytes("max", 10, 10, channels=2) == 13 * 10 * 2 * 4
    assert gather_bytes("mean", 3, 10) == gather_bytes("mean", 10, 10)


def test_a_layer_that_runs_out_of_memory_gets_its_row(monkeypatch: pytest.MonkeyPatch):
    benchmark = LayerBenchmark("short", TINY[0], power_law(40, 200, CPU), 1e9, seconds=0)
    row = benchmark.node2seq("max", 3, "eager")
    assert row.p50_ms is not None
    assert row.bound_share == pytest.approx(gather_bytes("max", 3, 240) / 1e6 / row.p50_ms)

    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(ops.eager, "convolve_max", full)
    row = benchmark.node2seq("max", 3, "eager")
    assert (row.result, row.p50_ms, row.backend) == (OUT_OF_MEMORY, None, "eager")


def test_compiled_gat_is_timed_or_says_why_not(monkeypatch: pytest.MonkeyPatch):
    benchmark = LayerBenchmark("short", TINY[0], power_law(40, 200, CPU), seconds=0)
    monkeypatch.setattr(torch.nn.Module, "compile", lambda *_, **__: None)
    row = benchmark.compiled_gat()
    assert (row.title(), row.result) == ("GATConv, compiled", None)
    assert row.p50_ms

    def no_compiler(*_: object, **__: object) -> None:
        raise RuntimeError("no C compiler\nand a long trace")

    monkeypatch.setattr(layers, "measure", no_compiler)
    assert benchmark.compiled_gat().result == f"{NOT_COMPILED}: no C compiler"


def test_the_short_benchmark_measures_every_backend_beside_gat(quick: None):
    said: list[str] = []
    found = short.short_benchmark(CPU, said.append)
    backends = agreement.runnable_backends(CPU)
    for size in TINY:
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
