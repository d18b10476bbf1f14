"""Does the same seed give the same weights, bit for bit? Train every model and hash its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from node2seq.nn.models import MODELS
from node2seq.storage import sha256_tensors
from node2seq.train.fitter import Fitter
from node2seq.train.settings import TrainSettings

SEED = 7


@dataclass(frozen=True)
class ModelCase:
    """A model with its options, and its name."""

    name: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)


# Node2Seq with each readout and with two hops, and each network that it is compared with.
MODEL_CASES = (
    ModelCase("Node2Seq max", "node2seq"),
    ModelCase("Node2Seq mean", "node2seq", {"readout": "mean"}),
    ModelCase("Node2Seq, 2 hops", "node2seq", {"hops": 2}),
    *(ModelCase(model.__name__, name) for name, model in MODELS.items() if name != "node2seq"),
)


class Thirds(NamedTuple):
    """Training, validation and test nodes."""

    train: Tensor
    val: Tensor
    test: Tensor


def hub_graph(nodes: int = 2_000, edges: int = 12_000) -> Data:
    """A graph whose first node is connected to all others; labels follow the features."""
    generator = torch.Generator().manual_seed(SEED)
    ends = torch.randint(nodes, (2, edges), generator=generator)
    spokes = torch.stack([torch.zeros(nodes - 1, dtype=torch.int64), torch.arange(1, nodes)])
    pairs = torch.cat([ends, spokes], dim=1)
    pairs = pairs[:, pairs[0] != pairs[1]]
    edge_index = torch.cat([pairs, pairs.flip(0)], dim=1).unique(dim=1)
    x = torch.randn(nodes, 32, generator=generator)
    return Data(x=x, edge_index=edge_index, y=x[:, :5].argmax(1))


def thirds(data: Data) -> Thirds:
    """A random split of all nodes into thirds."""
    order = torch.randperm(int(data.num_nodes or 0), generator=torch.Generator().manual_seed(SEED))
    return Thirds(*order.tensor_split(3))


def weights_digest(case: ModelCase, data: Data, split: Any, device: torch.device, epochs: int) -> str:
    """Train from :data:`SEED` and return the digest of the weights after the last epoch.

    Args:
        case: What to train.
        data: The graph.
        split: See :class:`node2seq.train.fitter.Fitter`.
        device: Where to train.
        epochs: How many, without early stopping.
    """
    torch.manual_seed(SEED)
    assert isinstance(data.y, Tensor)
    classes = int(data.y.max()) + 1
    model = MODELS[case.model](data.num_features, 16, classes, **case.options).to(device)
    fitter = Fitter(model, data, split, TrainSettings(epochs=epochs))
    while not fitter.done:
        fitter.step()
    return sha256_tensors(model.state_dict())
