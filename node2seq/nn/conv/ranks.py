"""Several orders at once for ``readout="ranks"``: heads, which read the graph once each."""

import torch
from torch import Tensor

from node2seq import ops


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Channels of several heads as graphs of their own: [..., N, H * d] → [R * H, N, d]."""
    if heads == 1:
        return x
    return x.unflatten(-1, (heads, -1)).movedim(-2, -3).flatten(0, -3).contiguous()


def join_heads(x: Tensor, heads: int, has_runs: bool) -> Tensor:
    """The other way round: [R * H, N, D] → [N, H * D], or [R, N, H * D] where there were runs."""
    if heads == 1:
        return x
    x = x.unflatten(0, (-1, heads)).movedim(-3, -2).flatten(-2)
    return x if has_runs else x[0]


def for_heads(x: Tensor, heads: int) -> Tensor:
    """The same for each head: [..., N, D] → [R * H, N, D]."""
    if heads == 1:
        return x
    return x.unsqueeze(-3).expand(*x.shape[:-2], heads, -1, -1).flatten(0, -3)


def taps_of_heads(weight: Tensor, heads: int, runs: int) -> Tensor:
    """Each head's matrices: [H * (K + 1), D, D] → [R * H, K + 1, D, D], the same for each run or its own."""
    if heads == 1:
        return weight
    weight = weight.unflatten(-3, (heads, -1))
    return (weight if weight.dim() == 5 else weight.expand(runs, -1, -1, -1, -1)).flatten(0, 1)


def edges_of_heads(edges: ops.EdgeValues, heads: int, runs: int) -> ops.EdgeValues:
    """What edges carry, for graphs that each head reads."""
    if heads == 1 or edges.attr is None or edges.attr.dim() == 2:
        return edges
    return edges._replace(attr=edges.attr.repeat_interleave(heads, 0, output_size=runs * heads))


def threshold_of_heads(threshold: float | Tensor, heads: int) -> float | Tensor:
    """β of each run for each of its heads."""
    return torch.repeat_interleave(threshold, heads) if isinstance(threshold, Tensor) else threshold
