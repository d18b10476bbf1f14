"""Small graphs with everything that goes wrong: duplicates, self loops, isolated nodes, a hub."""

import torch
from torch import Tensor

from node2seq.nn.conv.node2seq import Node2SeqConv

NODES, CHANNELS = 9, 5

# Node 0 is a hub, edge 1 → 2 is listed three times, 3 has a self loop (twice), 7 and 8 have no edges.
EDGES = torch.tensor(
    [
        [1, 2, 3, 4, 5, 6, 1, 1, 1, 3, 3, 0, 4, 2, 6],
        [0, 0, 0, 0, 0, 0, 2, 2, 2, 3, 3, 1, 5, 4, 4],
    ]
)


def features(nodes: int = NODES, channels: int = CHANNELS, seed: int = 0) -> Tensor:
    return torch.randn(
        nodes, channels, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    ).float()


def random_graph(nodes: int, edges: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return features(nodes, seed=seed), torch.randint(nodes, (2, edges), generator=generator)


def layer(
    in_channels: int | tuple[int, int] = CHANNELS, out_channels: int = 4, seed: int = 0, **kwargs
) -> Node2SeqConv:
    """A layer whose bias is not zero, so that forgetting it shows."""
    torch.manual_seed(seed)
    conv = Node2SeqConv(in_channels, out_channels, **kwargs)
    if conv.bias is not None:
        torch.nn.init.normal_(conv.bias)
    return conv


def gradients(module: torch.nn.Module, out: Tensor) -> dict[str, Tensor]:
    """The gradients of every parameter under a loss that tells all outputs apart."""
    module.zero_grad()
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    (out * weight).sum().backward()
    found = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, f"{name} has no gradient"
            found[name] = parameter.grad.clone()
    return found
