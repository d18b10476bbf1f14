"""Smoothing is the propagation of APPNP."""

import literal
import torch
from torch_geometric.nn import APPNP

from node2seq.nn.models.network import Smoothing


def test_smoothing_is_the_propagation_of_appnp():
    edge_index = literal.random_graph(1, undirected=False)
    x = torch.randn(30, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    expected = APPNP(5, 0.2)(x, edge_index)
    torch.testing.assert_close(Smoothing(5, 0.2)(x, edge_index), expected)
    assert Smoothing(0, 0.2)(x, edge_index) is x
