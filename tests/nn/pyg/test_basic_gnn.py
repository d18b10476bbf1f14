"""A BasicGNN subclass: jumping knowledge, norms, trimming and layer-wise inference come with it."""

import types

import pytest
import torch
from pyg_cases import EDGES, features, gradients, random_graph
from rounding import assert_same_up_to_rounding
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.models.basic_gnn import BasicGNN

from node2seq.nn.conv.node2seq import Node2SeqConv


class Node2SeqGNN(BasicGNN):
    supports_edge_weight = False  # pyright: ignore[reportGeneralTypeIssues]
    supports_edge_attr = False  # pyright: ignore[reportGeneralTypeIssues]

    def init_conv(self, in_channels: int | tuple[int, int], out_channels: int, **kwargs) -> MessagePassing:
        return Node2SeqConv(in_channels, out_channels, **kwargs)


@pytest.mark.parametrize("jk", [None, "last", "cat", "max", "lstm"])
@pytest.mark.parametrize("norm", [None, "batch_norm", "layer_norm"])
def test_jumping_knowledge_and_norms(jk, norm):
    torch.manual_seed(0)
    model = Node2SeqGNN(5, 6, num_layers=2, out_channels=3, jk=jk, norm=norm, readout="mean")
    assert all(isinstance(conv, Node2SeqConv) and conv.readout == "mean" for conv in model.convs)
    out = model(features(), EDGES)
    assert out.shape == (9, 3)
    gradients(model, out)
    model.eval()
    out = model(features(), EDGES)
    model.train()
    torch.manual_seed(1)
    model.reset_parameters()
    model.eval()
    assert not torch.equal(model(features(), EDGES), out)
    assert repr(model) == "Node2SeqGNN(5, 3, num_layers=2)"


@pytest.mark.parametrize("readout", ["max", "sum"])
def test_trimming_keeps_the_outputs_of_the_seed_nodes(readout):
    """Seeds 0 and 1; hop one samples 2, 3 and 4, hop two 5 to 7. Edges lie in the order of their hops."""
    torch.manual_seed(0)
    model = Node2SeqGNN(5, 6, num_layers=2, out_channels=3, readout=readout)
    x = features(8)
    edges = torch.tensor([[2, 3, 1, 4, 0, 5, 6, 7, 0, 3], [0, 0, 0, 1, 1, 2, 2, 3, 4, 4]])
    sizes = []
    for conv in model.convs:
        conv.register_forward_pre_hook(
            lambda _module, inputs: sizes.append((inputs[0].size(0), inputs[1].size(1)))
        )
    whole = model(x, edges)
    trimmed = model(x, edges, num_sampled_nodes_per_hop=[3, 3], num_sampled_edges_per_hop=[5, 5])
    assert sizes == [(8, 10), (8, 10), (8, 10), (5, 5)]  # the second layer did less work
    assert trimmed.size(0) == 5
    assert_same_up_to_rounding(trimmed[:2], whole[:2])


class OneHopLoader(NeighborLoader):
    """All neighbours of a few nodes at a time: what `inference` needs, without a compiled sampler."""

    def __init__(self, data: Data, batch_size: int) -> None:
        self.data = data
        self.nodes = data.num_nodes or 0
        self.dataset = range(self.nodes)  # pyright: ignore[reportAttributeAccessIssue]
        self.node_sampler = types.SimpleNamespace(num_neighbors=[-1])
        self.seeds = batch_size

    def __len__(self) -> int:
        return -(-self.nodes // self.seeds)

    def __iter__(self):  # pyright: ignore[reportIncompatibleMethodOverride]
        assert self.data.edge_index is not None
        source, target = self.data.edge_index
        for seeds in torch.arange(self.nodes).split(self.seeds):
            kept = torch.isin(target, seeds)
            others = source[kept & ~torch.isin(source, seeds)].unique()
            n_id = torch.cat([seeds, others])
            local = torch.full((self.nodes,), -1)
            local[n_id] = torch.arange(n_id.numel())
            edge_index = local[torch.stack([source[kept], target[kept]])]
            yield Data(n_id=n_id, edge_index=edge_index, batch_size=seeds.numel())


@pytest.mark.parametrize("jk", [None, "last"])
@pytest.mark.parametrize("cache", [False, True])
def test_layer_wise_inference_is_the_full_forward(jk, cache):
    torch.manual_seed(0)
    model = Node2SeqGNN(5, 6, num_layers=3, out_channels=3, jk=jk, norm="batch_norm").eval()
    x, edges = random_graph(30, 120)
    out = model.inference(OneHopLoader(Data(x=x, edge_index=edges), batch_size=7), cache=cache)
    assert isinstance(out, Tensor)
    assert_same_up_to_rounding(out, model(x, edges))
