"""Random graphs with few hubs and many nodes of low degree."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Size(NamedTuple):
    """A graph's name and size."""

    name: str
    nodes: int
    edges: int


def power_law(nodes: int, edges: int, device: torch.device, seed: int = 0, exponent: float = 0.6) -> Tensor:
    """Distinct directed edges, in no order, whose ends are drawn with probability ∝ rank^−exponent.

    The same seed gives the same graph on one kind of device.
    """
    generator = torch.Generator(device).manual_seed(seed)
    number = torch.randperm(nodes, device=device, generator=generator)

    def ends() -> Tensor:
        drawn = torch.rand(edges, device=device, dtype=torch.float64, generator=generator)
        rank = (drawn.pow_(1 / (1 - exponent)) * nodes).long().clamp_(max=nodes - 1)
        return number[rank]

    found = torch.zeros(0, dtype=torch.int64, device=device)
    while found.numel() < edges:
        found = torch.cat([found, ends() * nodes + ends()]).unique()
    found = found[torch.randperm(found.numel(), device=device, generator=generator)[:edges]]
    return torch.stack([found % nodes, found // nodes])
