"""Random graphs."""

from __future__ import annotations

import torch

from node2seq.benchmarking.graphs import power_law

CPU = torch.device("cpu")


def test_graphs_are_as_large_as_told_distinct_and_repeatable():
    edges = power_law(100, 900, CPU)
    assert edges.shape == (2, 900)
    assert edges.unique(dim=1).shape == (2, 900)
    assert torch.equal(edges, power_law(100, 900, CPU))
    assert not torch.equal(edges, power_law(100, 900, CPU, seed=1))
    assert torch.bincount(edges[1]).max() > 3 * 9  # a hub
