"""Modules of PyTorch Geometric that are built around a layer take ours."""

import copy
from typing import Any

import pytest
import torch
from pyg_cases import features, gradients, random_graph
from rounding import assert_same_up_to_rounding
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import (
    GAE,
    AntiSymmetricConv,
    ASAPooling,
    DeepGCNLayer,
    DeepGraphInfomax,
    DirGNNConv,
    GPSConv,
    GraphUNet,
    GroupAddRev,
    JumpingKnowledge,
    SAGPooling,
    Sequential,
    global_add_pool,
    to_hetero_with_bases,
)

from node2seq import Node2SeqConv

X, EDGES = random_graph(12, 40)
BATCH = torch.tensor([0] * 7 + [1] * 5)
GNN: Any = Node2SeqConv  # which PyG declares as a module, and calls as a class
WITHIN = EDGES[:, BATCH[EDGES[0]] == BATCH[EDGES[1]]]


def _conv(**options: Any) -> Node2SeqConv:
    torch.manual_seed(0)
    return Node2SeqConv(5, 5, **options)


def _learns(module: nn.Module, out: torch.Tensor) -> None:
    assert bool(out.isfinite().all())
    assert all(bool(grad.isfinite().all()) for grad in gradients(module, out).values())


@pytest.mark.parametrize("readout", ["max", "mean"])
def test_self_attention_pooling(readout):
    torch.manual_seed(0)
    pool = SAGPooling(5, ratio=0.5, GNN=GNN, readout=readout)
    x, edges, _, batch, perm, score = pool(X, WITHIN, batch=BATCH)
    assert x.shape == (7, 5)  # the better half of each graph, rounded up
    assert torch.bincount(batch).tolist() == [4, 3]
    assert int(edges.max()) < 7
    alone = pool.gnn(X, WITHIN).view(-1).tanh()
    assert_same_up_to_rounding(score, alone[perm])
    _learns(pool.gnn, x)


@pytest.mark.parametrize("weighted", [False, True])
def test_adaptive_structure_aware_pooling(weighted):
    torch.manual_seed(0)
    pool = ASAPooling(5, ratio=0.5, GNN=Node2SeqConv, kernel_size=2)
    assert isinstance(pool.gnn_intra_cluster, Node2SeqConv)
    assert pool.gnn_intra_cluster.kernel_size == 2
    weight = torch.rand(WITHIN.size(1)) if weighted else None
    x, edges, _, batch, perm = pool(X, WITHIN, weight, batch=BATCH)
    assert x.shape == (7, 5)
    assert torch.bincount(batch).tolist() == [4, 3]
    assert perm.numel() == 7
    assert int(edges.max()) < 7
    _learns(pool.gnn_intra_cluster, x)


@pytest.mark.parametrize("block", ["res+", "res", "dense", "plain"])
def test_deep_layers(block):
    conv, norm = _conv(), nn.LayerNorm(5)
    layer = DeepGCNLayer(conv, norm, nn.ReLU(), block=block, dropout=0.0)
    out = layer(X, EDGES)
    assert out.shape == (12, 10 if block == "dense" else 5)
    if block == "plain":
        assert_same_up_to_rounding(out, norm(conv(X, EDGES)).relu())
    _learns(layer, out)


def test_deep_layers_with_checkpointing():
    layer = DeepGCNLayer(_conv(), nn.LayerNorm(5), nn.ReLU(), block="res+", dropout=0.0)
    x = X.clone().requires_grad_()
    expected = gradients(layer, layer(x, EDGES))
    layer.ckpt_grad = True
    assert_same_up_to_rounding(gradients(layer, layer(x, EDGES)), expected)


def test_reversible_layers():
    torch.manual_seed(0)
    layer = GroupAddRev(Node2SeqConv(3, 3), num_groups=2)
    x = features(12, 6).requires_grad_()
    out = layer(x, EDGES)
    assert out.shape == (12, 6)
    _learns(layer, out)


def test_sequential_with_jumping_knowledge():
    torch.manual_seed(0)
    model = Sequential(
        "x, edge_index, batch",
        [
            (Node2SeqConv(5, 8), "x, edge_index -> x1"),
            nn.ReLU(inplace=True),
            (Node2SeqConv(8, 8, readout="mean"), "x1, edge_index -> x2"),
            (lambda x1, x2: [x1, x2], "x1, x2 -> xs"),
            (JumpingKnowledge("cat"), "xs -> x"),
            (global_add_pool, "x, batch -> x"),
            nn.Linear(16, 2),
        ],
    )
    out = model(X, WITHIN, BATCH)
    assert out.shape == (2, 2)
    _learns(model, out)


def test_both_directions():
    layer = DirGNNConv(_conv(add_self_loops=False, root="none"), alpha=0.25)
    assert layer.lin is not None
    out = layer(X, EDGES)
    there, back = layer.conv_in(X, EDGES), layer.conv_out(X, EDGES.flip(0))
    assert_same_up_to_rounding(out, 0.75 * there + 0.25 * back + layer.lin(X), roundings=16)
    _learns(layer, out)


def test_beside_global_attention():
    layer = GPSConv(5, _conv(), heads=1, dropout=0.0)
    _learns(layer, layer(X, WITHIN, BATCH))


def test_antisymmetric_layers():
    layer = AntiSymmetricConv(5, phi=_conv(), num_iters=2)
    _learns(layer, layer(X, EDGES))


def test_encoders():
    torch.manual_seed(0)
    coder = GAE(_conv())
    loss = coder.recon_loss(coder.encode(X, EDGES), EDGES)
    _learns(coder, loss)
    infomax = DeepGraphInfomax(
        5,
        encoder=_conv(),
        summary=lambda z, *_: z.mean(dim=0).sigmoid(),
        corruption=lambda x, edge_index: (x.flip(0), edge_index),
    )
    _learns(infomax, infomax.loss(*infomax(X, EDGES)))


def test_pooling_and_unpooling():
    """A U-Net whose layers are replaced by ours: each level has another graph."""
    torch.manual_seed(0)
    model = GraphUNet(5, 8, 3, depth=2)
    for convs in (model.down_convs, model.up_convs):
        for number, conv in enumerate(list(convs)):
            convs[number] = Node2SeqConv(conv.in_channels, conv.out_channels)  # pyright: ignore[reportArgumentType]
    out = model(X, WITHIN, BATCH)
    assert out.shape == (12, 3)
    _learns(model, out)


def test_several_types_with_shared_bases():
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = Node2SeqConv((16, 16), 8, add_self_loops=False)

        def forward(self, x: Any, edge_index: Any) -> Any:
            return self.conv(x, edge_index).relu()

    torch.manual_seed(0)
    types = (["a", "b"], [("a", "to", "b"), ("b", "to", "a"), ("a", "on", "a")])
    model = to_hetero_with_bases(Network(), types, num_bases=2, in_channels={"x": 16})
    x = {"a": features(6, 5), "b": features(4, 7)}
    edges = {
        ("a", "to", "b"): torch.tensor([[0, 1, 5], [0, 1, 3]]),
        ("b", "to", "a"): torch.tensor([[0, 1, 3], [0, 1, 5]]),
        ("a", "on", "a"): torch.tensor([[0, 1], [1, 2]]),
    }
    out = model(x, edges)
    assert {name: value.shape for name, value in out.items()} == {"a": (6, 8), "b": (4, 8)}
    _learns(model, torch.cat([value.flatten() for value in out.values()]))


def test_a_batch_of_graphs_is_each_graph_alone():
    conv = _conv(hops=2)
    graphs = [
        Data(x=x, edge_index=edges) for x, edges in (random_graph(n, 3 * n, seed=n) for n in (4, 1, 9, 6))
    ]
    batch: Any = Batch.from_data_list(list(graphs))
    out = conv(batch.x, batch.edge_index)
    alone = [conv(graph.x, copy.copy(graph.edge_index)) for graph in graphs]
    assert_same_up_to_rounding(out, torch.cat(alone))
