"""Evaluate, predict and embed with a model as it is."""

from __future__ import annotations

import pytest
import torch
from tiny_graph import make_graph, make_model
from torch import Tensor, nn
from torch_geometric.data import Data

from node2seq.errors import Node2SeqError
from node2seq.train.inference import embed, evaluate, evaluate_parts, predict


def test_predict_gives_probabilities_for_every_node_and_leaves_the_mode_alone():
    data, _ = make_graph()
    unlabelled = Data(x=data.x, edge_index=data.edge_index)
    model = make_model().train()
    probabilities = predict(model, unlabelled)
    assert probabilities.shape == (60, 3)
    assert torch.allclose(probabilities.sum(1), torch.ones(60))
    assert model.training
    assert int(model.step) == 0
    assert embed(model, unlabelled).shape == (60, 3)


def test_a_model_without_embed_is_named():
    data, _ = make_graph()
    with pytest.raises(Node2SeqError, match="the model Linear: it has no embed method"):
        embed(nn.Linear(8, 3), data)


def test_several_parts_are_measured_in_one_pass():
    data, split = make_graph()
    model, passes = make_model(), []
    model.register_forward_hook(lambda *_: passes.append(1))
    parts = {"val": split.val, "test": split.test, "both": torch.cat([split.val, split.test])}
    found = evaluate_parts(model, data, parts)
    assert len(passes) == 1
    assert found == {name: evaluate(model, data, index) for name, index in parts.items()}


def test_nodes_without_a_label_are_not_measured():
    data, split = make_graph()
    assert isinstance(data.y, Tensor)
    data.y[split.test[3]] = -1
    with pytest.raises(
        Node2SeqError, match=f"test node {int(split.test[3])}: 1 of the test nodes have no label"
    ):
        evaluate_parts(make_model(), data, {"val": split.val, "test": split.test})
