"""Steps of Adam and NAdam beside those of torch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_graph import SETTINGS, make_graph, make_model
from torch import Tensor, nn

from node2seq.train.fitter import Fitter, fit


def test_conv_weight_decay_reaches_the_node2seq_group_alone():
    data, split = make_graph()
    plain, decayed = make_model(), make_model()
    one = replace(SETTINGS, epochs=1, weight_decay=0.0)
    fit(plain, data, split, one)
    fit(decayed, data, split, replace(one, conv_weight_decay=100.0))
    assert torch.equal(plain.own.weight, decayed.own.weight)
    assert not torch.equal(plain.near.weight, decayed.near.weight)


@pytest.mark.parametrize(
    ("optimizer", "theirs", "close"),
    # NAdam of torch keeps its product of momenta in 32 bits.
    [("adam", torch.optim.Adam, 1e-12), ("nadam", torch.optim.NAdam, 1e-7)],
)
def test_steps_are_those_of_torch(optimizer, theirs, close):
    data, split = make_graph()
    assert data.x is not None
    assert isinstance(data.y, Tensor)
    data.x = data.x.double()
    ours, twin = make_model().double(), make_model().double()
    settings = replace(SETTINGS, optimizer=optimizer, conv_weight_decay=0.02)
    fitter = Fitter(ours, data, split, settings)
    groups = [
        {"params": twin.near.parameters(), "weight_decay": 0.02},
        {"params": twin.own.parameters(), "weight_decay": settings.weight_decay},
    ]
    reference = theirs(groups, lr=settings.lr)
    for _ in range(12):
        fitter.step()
        reference.zero_grad()
        nn.functional.cross_entropy(
            twin(data.x, data.edge_index)[split.train], data.y[split.train]
        ).backward()
        reference.step()
    for name, weight in twin.named_parameters():
        assert torch.allclose(ours.get_parameter(name), weight, rtol=0, atol=close), name
