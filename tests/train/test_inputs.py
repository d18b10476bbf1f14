"""Graphs and splits that cannot be trained on are named."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_graph import SETTINGS, make_graph, make_model
from torch import Tensor
from torch_geometric.data import Data

from node2seq.errors import Node2SeqError
from node2seq.train.fitter import fit


def spoil(data: Data, **changes) -> Data:
    changed = data.clone()
    for name, value in changes.items():
        changed[name] = value
    return changed


def with_value(x, value: float) -> Tensor:
    x = x.clone()
    x[3, 2] = value
    return x


BAD_GRAPHS = {
    "nan": (
        lambda d, s: (spoil(d, x=with_value(d.x, float("nan"))), s),
        "data.x[3, 2]=nan: 1 feature is not a finite number. Fill or drop them before training.",
    ),
    "infinite": (
        lambda d, s: (spoil(d, x=with_value(d.x, float("inf"))), s),
        "data.x[3, 2]=inf: 1 feature is not a finite number. Fill or drop them before training.",
    ),
    "too large": (
        lambda d, s: (spoil(d, x=with_value(d.x, -(2.0**70))), s),
        f"data.x[3, 2]={-(2.0**70)}: 1 feature is too large to compute with in 32 bits. "
        "Scale the column before training.",
    ),
    "no features": (
        lambda d, s: (spoil(d, x=None), s),
        "data.x=None: the model needs features and edges. Set data.x.",
    ),
    "no labels": (
        lambda d, s: (spoil(d, y=None), s),
        "data.y=None: training and measuring need labels. Set data.y, with -1 for unlabelled.",
    ),
    "float labels": (
        lambda d, s: (spoil(d, y=d.y.float()), s),
        "metric=accuracy: the labels are numbers, and it is no metric of regression. "
        "Choose one of r2, mae, rmse.",
    ),
    "label too high": (
        lambda d, s: (spoil(d, y=d.y + 1), s),
        "label 3: the model gives 3 classes, 0 to 2. Build the model with out_channels=4.",
    ),
    "empty train": (
        lambda d, s: (d, replace(s, train=s.train[:0])),
        "0 train nodes: there is nothing to train on. Give a split with at least one node in each part.",
    ),
    "empty validation": (
        lambda d, s: (d, replace(s, val=s.val[:0])),
        "0 val nodes: there is nothing to measure. Give a split with at least one node in each part.",
    ),
    "mask": (
        lambda d, s: (d, replace(s, train=torch.ones(60, dtype=torch.bool))),
        "the train nodes of type torch.bool and shape [60]: node indices are expected. "
        "Turn a mask into indices with mask.nonzero().view(-1).",
    ),
    "outside": (
        lambda d, s: (d, replace(s, test=torch.tensor([60]))),
        "test node 60: the nodes are 0 to 59. Make the split for this graph.",
    ),
    "unlabelled": (
        lambda d, s: (spoil(d, y=torch.full((60,), -1)), s),
        "train node 26: 20 of the train nodes have no label. Leave unlabelled nodes out of the split.",
    ),
    "overlap": (
        lambda d, s: (d, replace(s, train=torch.tensor([1]), test=torch.tensor([1]), val=torch.tensor([2]))),
        "node 1: it is in the split more than once, so the model would be tested on its own training nodes. "
        "Give each node one part at most.",
    ),
}


@pytest.mark.parametrize("case", BAD_GRAPHS)
def test_bad_graphs(case: str):
    change, message = BAD_GRAPHS[case]
    data, split = change(*make_graph())
    with pytest.raises(Node2SeqError) as caught:
        fit(make_model(), data, split, SETTINGS)
    assert str(caught.value) == message


def test_a_class_without_training_nodes_is_a_warning():
    data, split = make_graph()
    assert isinstance(data.y, Tensor)
    known = split.train[data.y[split.train] != 2]
    result = fit(make_model(), data, replace(split, train=known), SETTINGS)
    assert result.warnings == ("No training node has class 2: the model cannot learn to predict it.",)
    single = split.train[data.y[split.train] == 0]
    result = fit(make_model(), data, replace(split, train=single), SETTINGS)
    assert result.warnings[0].startswith("All training nodes have the same class")
