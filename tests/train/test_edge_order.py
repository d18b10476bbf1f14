"""Networks are trained and asked with the order that the edges of a graph have."""

from __future__ import annotations

import pytest
import torch
from tiny_graph import Parts, make_graph
from torch_geometric.data import Data

from node2seq import MODELS, Node2SeqError
from node2seq.data.graph import carried_by
from node2seq.nn.models.residual import ResidualNode2Seq
from node2seq.train import TrainSettings, fit, predict
from node2seq.train.inputs import edge_values


def ordered_graph() -> tuple[Data, Parts]:
    data, split = make_graph()
    assert data.edge_index is not None
    generator = torch.Generator().manual_seed(0)
    seconds = torch.randperm(data.edge_index.size(1), generator=generator).double()
    data.edge_order = 1.7e9 + seconds  # too close together for 32 bits
    return data, split


def network(data: Data, **options) -> ResidualNode2Seq:
    torch.manual_seed(0)
    return ResidualNode2Seq(data.num_features, 8, 3, num_layers=1, dropout=0.0, readout="ranks", **options)


def test_the_order_of_the_graph_reaches_the_network() -> None:
    data, split = ordered_graph()
    model = network(data, order="edge")
    fit(model, data, split, TrainSettings(epochs=3))
    found = predict(model, data)
    assert data.x is not None
    torch.testing.assert_close(
        found, model.eval()(data.x, data.edge_index, edge_order=data.edge_order).softmax(1)
    )
    turned = data.clone()
    turned.edge_order = -data.edge_order
    assert not torch.equal(predict(model, turned), found)


@pytest.mark.parametrize("order", ["attention", "degree", "random"])
def test_a_network_with_another_order_is_trained_without_it(order: str) -> None:
    data, split = ordered_graph()
    model = network(data, order=order)
    assert edge_values(model, data) == {}
    fit(model, data, split, TrainSettings(epochs=2))
    turned = data.clone()
    turned.edge_order = -data.edge_order
    assert torch.equal(predict(model, turned), predict(model, data))


def test_what_cannot_be_an_order_is_named() -> None:
    data, split = ordered_graph()
    data.edge_order[3] = torch.nan
    with pytest.raises(Node2SeqError, match=r"data.edge_order\[3\]: it is not a finite number"):
        fit(network(data, order="edge"), data, split)
    data, split = ordered_graph()
    del data.edge_order
    assert carried_by(data) == {}
    with pytest.raises(Node2SeqError, match="no edge_order"):
        fit(network(data, order="edge"), data, split)
    data, split = ordered_graph()
    with pytest.raises(Node2SeqError, match="edge_order for GCN"):
        fit(MODELS["gcn"](data.num_features, 8, 3), data, split)
