"""Graphs with several node types."""

import re

import pytest
import torch
from pyg_cases import features
from rounding import assert_same_up_to_rounding
from torch import nn
from torch_geometric.nn import HeteroConv, MessagePassing, to_hetero

from node2seq.nn.conv.node2seq import Node2SeqConv

TYPES = ["author", "paper"]
WRITES, CITES, WRITTEN_BY = (
    ("author", "writes", "paper"),
    ("paper", "cites", "paper"),
    ("paper", "by", "author"),
)
X = {"author": features(4, 3, seed=1), "paper": features(6, 5, seed=2)}
EDGES = {
    WRITES: torch.tensor([[0, 1, 1, 2, 3, 0], [0, 0, 1, 2, 3, 5]]),
    CITES: torch.tensor([[1, 2, 3, 4, 5, 0], [0, 0, 1, 1, 2, 2]]),
    WRITTEN_BY: torch.tensor([[0, 0, 1, 2, 3, 5], [0, 1, 1, 2, 3, 0]]),
}


class Network(nn.Module):
    def __init__(self, in_channels, **kwargs):
        super().__init__()
        self.first = Node2SeqConv(in_channels, 6, **kwargs)
        self.second = Node2SeqConv((-1, -1) if isinstance(in_channels, tuple) else -1, 2, **kwargs)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def test_to_hetero_is_one_lazy_layer_per_edge_type():
    torch.manual_seed(0)
    model = to_hetero(Network((-1, -1), add_self_loops=False), (TYPES, list(EDGES)), aggr="sum")
    out = model(X, EDGES)

    def convolve(layers, x):
        found = {
            edge_type: getattr(model, layers)["__".join(edge_type)](
                (x[edge_type[0]], x[edge_type[2]]), EDGES[edge_type]
            )
            for edge_type in EDGES
        }
        return {"paper": found[WRITES] + found[CITES], "author": found[WRITTEN_BY]}

    hidden = {name: value.relu() for name, value in convolve("first", X).items()}
    expected = convolve("second", hidden)
    for name in TYPES:
        assert_same_up_to_rounding(out[name], expected[name])
    torch.cat([value.flatten() for value in out.values()]).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_to_hetero_with_self_loops_between_types_is_pygs_error():
    with pytest.raises(ValueError, match=re.escape("'add_self_loops' attribute set to 'True' on module")):
        to_hetero(Network((-1, -1)), (TYPES, list(EDGES)))


def test_to_hetero_with_self_loops_within_one_type():
    torch.manual_seed(0)
    plain = Network(5)
    model = to_hetero(plain, (["paper"], [CITES]))
    out = model({"paper": X["paper"]}, {CITES: EDGES[CITES]})["paper"]
    for name in ("first", "second"):
        getattr(plain, name).load_state_dict(getattr(model, name)["paper__cites__paper"].state_dict())
    assert_same_up_to_rounding(out, plain(X["paper"], EDGES[CITES]))


def test_hetero_conv():
    torch.manual_seed(0)
    convs: dict[tuple[str, str, str], MessagePassing] = {
        edge_type: Node2SeqConv((-1, -1), 4, add_self_loops=edge_type == CITES) for edge_type in EDGES
    }
    out = HeteroConv(convs, aggr="sum")(X, EDGES)
    expected = convs[WRITES]((X["author"], X["paper"]), EDGES[WRITES]) + convs[CITES](
        (X["paper"], X["paper"]), EDGES[CITES]
    )
    assert_same_up_to_rounding(out["paper"], expected)
    with pytest.raises(ValueError, match="This will lead to incorrect message passing results"):
        HeteroConv({WRITES: Node2SeqConv((-1, -1), 4)})
