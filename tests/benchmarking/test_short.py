"""The short benchmark: every backend beside GATConv, within its time."""

from __future__ import annotations

import torch

from node2seq.benchmarking import agreement, short

CPU = torch.device("cpu")


def test_the_short_benchmark_measures_every_backend_beside_gat(quick: None):
    said: list[str] = []
    found = short.short_benchmark(CPU, said.append)
    backends = agreement.runnable_backends(CPU)
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
