"""A small graph, and a model that learns it in a moment."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from node2seq.train.settings import TrainSettings

SETTINGS = TrainSettings(epochs=15, lr=0.05)


@dataclass(frozen=True)
class Parts:
    train: Tensor
    val: Tensor
    test: Tensor


class Tiny(nn.Module):
    """Mean of the neighbours and a linear map; its noise is counted in the state, as our models' is."""

    step: Tensor

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.own = nn.Linear(in_channels, out_channels)
        self.near = nn.Linear(in_channels, out_channels, bias=False)
        self.register_buffer("step", torch.tensor(0))

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {"node2seq": list(self.near.parameters()), "other": list(self.own.parameters())}

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        near = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        return self.near(near)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.training:
            self.step += 1
            noise = torch.Generator().manual_seed(int(self.step))
            x = x * (torch.rand(x.shape, generator=noise) > 0.3)
        return self.own(x) + self.embed(x, edge_index)


def make_graph(n: int = 60, classes: int = 3) -> tuple[Data, Parts]:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % classes
    x = torch.randn(n, 8, generator=generator) + nn.functional.one_hot(y, 8) * 4
    source = torch.randint(n, (4 * n,), generator=generator)
    step = classes * torch.randint(n, (4 * n,), generator=generator)  # neighbours have the same class
    edge_index = torch.stack([source, (source + step) % n])
    order = torch.randperm(n, generator=generator)
    return Data(x=x, edge_index=edge_index, y=y), Parts(order[:20], order[20:40], order[40:])


def make_model(seed: int = 0) -> Tiny:
    torch.manual_seed(seed)
    return Tiny(8, 3)


def assert_same_weights(a: nn.Module, b: nn.Module) -> None:
    left, right = a.state_dict(), b.state_dict()
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name
