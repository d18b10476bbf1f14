"""Layers on one graph: rows, the gather bound, and GATConv under ``torch.compile``."""

from __future__ import annotations

import pytest
import torch

from node2seq import ops
from node2seq.benchmarking import layers
from node2seq.benchmarking.layers import (
    NOT_COMPILED,
    OUT_OF_MEMORY,
    BenchmarkInTurns,
    LayerBenchmark,
    Size,
    gather_bytes,
    measured_in_turns,
    power_law,
)
from node2seq.benchmarking.rows import BenchmarkRow

CPU = torch.device("cpu")
TINY = Size("tiny", 40, 200)


def test_gathers_grow_with_the_kernel_for_the_maximum_alone():
    assert gather_bytes("max", 3, 10, channels=2) == 6 * 10 * 2 * 4
    assert gather_bytes("max", 10, 10, channels=2) == 13 * 10 * 2 * 4
    assert gather_bytes("mean", 3, 10) == gather_bytes("mean", 10, 10)
    assert gather_bytes("ranks", 3, 10, channels=2) == 3 * 10 * 2 * 4


def test_a_layer_that_runs_out_of_memory_gets_its_row(monkeypatch: pytest.MonkeyPatch):
    benchmark = LayerBenchmark("short", TINY, power_law(40, 200, CPU), 1e9, seconds=0)
    row = benchmark.node2seq("max", 3, "eager")
    assert row.p50_ms is not None
    assert row.bound_share == pytest.approx(gather_bytes("max", 3, 240) / 1e6 / row.p50_ms)

    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(ops.eager, "convolve_max", full)
    row = benchmark.node2seq("max", 3, "eager")
    assert (row.result, row.p50_ms, row.backend) == (OUT_OF_MEMORY, None, "eager")


def test_compiled_gat_is_timed_or_says_why_not(monkeypatch: pytest.MonkeyPatch):
    benchmark = LayerBenchmark("short", TINY, power_law(40, 200, CPU), seconds=0)
    monkeypatch.setattr(torch.nn.Module, "compile", lambda *_, **__: None)
    row = benchmark.compiled_gat()
    assert (row.title(), row.result) == ("GATConv, compiled", None)
    assert row.p50_ms

    def no_compiler(*_: object, **__: object) -> None:
        raise RuntimeError("no C compiler\nand a long trace")

    monkeypatch.setattr(layers, "measure", no_compiler)
    assert benchmark.compiled_gat().result == f"{NOT_COMPILED}: no C compiler"


def test_graphs_are_as_large_as_told_distinct_and_repeatable():
    edges = power_law(100, 900, CPU)
    assert edges.shape == (2, 900)
    assert edges.unique(dim=1).shape == (2, 900)
    assert torch.equal(edges, power_law(100, 900, CPU))
    assert not torch.equal(edges, power_law(100, 900, CPU, seed=1))
    assert torch.bincount(edges[1]).max() > 3 * 9  # a hub


def test_layers_take_turns():
    """In each round each runs twice unmeasured, then as often as asked for; what fails fails once."""
    ran: list[str] = []
    rows = {name: BenchmarkRow("layer", *TINY, name) for name in ("a", "b", "c")}

    def fail() -> None:
        ran.append("c")
        raise RuntimeError("no C compiler\nand a long trace")

    steps = {rows["a"]: lambda: ran.append("a"), rows["b"]: lambda: ran.append("b"), rows["c"]: fail}
    found = measured_in_turns(steps, CPU, 2, least=3)
    assert "".join(ran) == "aaaaabbbbbcaaaaabbbbb"
    assert [row.case for row in found] == ["a", "b", "c"]
    for row in found[:2]:
        times = (row.p20_ms, row.p50_ms, row.p80_ms)
        assert list(times) == sorted(time for time in times if time is not None)
    assert found[2].result == f"{NOT_COMPILED}: no C compiler"


def test_a_benchmark_in_turns_measures_the_same_layers():
    edges = power_law(40, 200, CPU)
    in_turns = BenchmarkInTurns("layer", TINY, edges)
    noted = [in_turns.gat(), in_turns.node2seq("max", 3, "eager"), in_turns.node2seq("mean", 3, "eager")]
    assert all(row.p50_ms is None for row in noted)
    found = in_turns.rows(rounds=2, least=1)
    assert [row.title() for row in found] == [row.title() for row in noted]
    assert all(row.p50_ms for row in found)
