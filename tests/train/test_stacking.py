"""Models of several runs as one, and back."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from node2seq.errors import Node2SeqError
from node2seq.nn.models import GAT, GCN, GIN, Node2Seq
from node2seq.train.stacking import stack, take, unstack

X = torch.rand(7, 5)
EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 0], [1, 2, 3, 4, 5, 6, 0, 3]])


def models(kind: type = Node2Seq, **options: list[Any]) -> list[Any]:
    made = []
    for run in range(3):
        torch.manual_seed(run)
        made.append(kind(5, 4, 3, **{name: values[run] for name, values in options.items()}))
    return made


@pytest.mark.parametrize("kind", [Node2Seq, GIN, GAT])
def test_each_run_comes_back_as_it_was(kind):
    alone = models(kind, dropout=[0.1, 0.0, 0.5])
    stacked = stack(alone)
    for run, model in enumerate(alone):
        again: Any = unstack(stacked, run)
        assert again.dropout == model.dropout
        assert [d.p for d in again.dropouts] == [d.p for d in model.dropouts]
        assert again.state_dict().keys() == model.state_dict().keys()
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in again.state_dict().items())
        assert torch.equal(again.train()(X, EDGES), model.train()(X, EDGES))


def test_a_stack_shares_nothing_with_what_it_was_made_from():
    alone = models()
    before = alone[1].convs[0].bias.clone()
    stacked: Any = stack(alone)
    part: Any = take(stacked, [2, 1])
    with torch.no_grad():
        stacked.convs[0].bias.fill_(7.0)
    assert torch.equal(alone[1].convs[0].bias, before)
    assert torch.equal(part.convs[0].bias[1], before)
    assert part.convs[0].bias.shape == (2, 4)


def test_thresholds_may_differ_and_come_back():
    stacked: Any = stack(models(threshold=[0.0, 0.25, -1.0], hops=[2, 2, 2]))
    assert stacked.convs[1].threshold.tolist() == [0.0, 0.25, -1.0]
    second: Any = unstack(stacked, 1)
    assert second.convs[1].threshold == 0.25
    assert not any("threshold" in name for name in stacked.state_dict())


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            lambda: [GCN(5, 4, 3), GIN(5, 4, 3)],
            "models that differ in their class: runs that are",
        ),
        (lambda: [GCN(5, 4, 3), GCN(5, 8, 3)], r"hidden_channels=4, 8|of shapes"),
        (lambda: models(readout=["max", "mean", "max"]), "readout='max', 'mean': Node2Seq then computes in"),
        (lambda: models(hops=[1, 2, 1]), "hops=1, 2: Node2Seq then computes in different ways"),
    ],
)
def test_what_cannot_be_stacked_is_named(made, message):
    with pytest.raises(Node2SeqError, match=message):
        stack(made())
