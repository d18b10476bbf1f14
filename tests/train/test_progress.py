"""Which epoch is chosen, and when training ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_graph import SETTINGS, Parts, make_graph, make_model
from torch import Tensor, nn
from torch_geometric.data import Data

from node2seq.train.fitter import fit
from node2seq.train.settings import TrainSettings


class Scripted(nn.Module):
    """Judges node 1 as told, epoch by epoch: by how much its class leads; it trains on node 0 in vain."""

    def __init__(self, leads: list[float]) -> None:
        super().__init__()
        self.leads = leads
        self.weight = nn.Parameter(torch.zeros(1))
        self.register_buffer("epoch", torch.tensor(0))

    def forward(self, x: Tensor, _edge_index: Tensor) -> Tensor:
        if self.training:
            self.epoch += 1
        lead = self.leads[int(self.epoch) - 1]
        return torch.tensor([[0.0, 0.0], [lead, 0.0], [0.0, 0.0]]) + x * self.weight


@pytest.mark.parametrize(
    ("leads", "best"),
    [
        ([-1.0, 1.0, 2.0, 1.0], 3),  # a hit comes first, then the lower loss
        ([1.0, -9.0, 1.0], 1),  # the first of equals stays
        ([-2.0, -1.0, -1.5], 2),  # the loss decides where nothing is hit
    ],
)
def test_the_chosen_epoch_follows_the_one_rule(leads: list[float], best: int):
    data = Data(x=torch.ones(3, 2), edge_index=torch.zeros(2, 0, dtype=torch.long), y=torch.tensor([1, 0, 0]))
    nodes = [torch.tensor([node]) for node in range(3)]
    model = Scripted(leads)
    result = fit(model, data, Parts(*nodes), TrainSettings(epochs=len(leads)))
    assert result.best.epoch == best
    assert int(model.epoch) == best  # its weights came back, too


def test_the_chosen_epoch_is_the_best_of_the_history():
    data, split = make_graph()
    result = fit(make_model(), data, split, SETTINGS)
    by_rule = min(result.history, key=lambda r: (-r.val_accuracy, r.val_loss, r.epoch))
    assert result.best == by_rule


def test_patience_stops_early():
    data, split = make_graph()
    settings = replace(SETTINGS, epochs=500, patience=5)
    result = fit(make_model(), data, split, settings)
    assert len(result.history) < 500
    assert len(result.history) - result.best.epoch == 5
