"""Graphs and numbers to try the compiled loops on."""

import torch
from torch import Tensor

from node2seq import ops


def hub_graph(nodes: int, edges: int, hub: int, seed: int = 0) -> ops.Sequences:
    """Random edges; node 0 hears from, and is heard by, many."""
    generator = torch.Generator().manual_seed(seed)
    source, target = torch.randint(0, nodes, (2, edges), generator=generator)
    others = torch.arange(1, hub)
    zeros = torch.zeros_like(others)
    return ops.build_sequences(
        torch.cat([source, others, zeros]),
        torch.cat([target, zeros, others]),
        nodes,
        nodes,
        add_self_loops=True,
        merge_duplicates=True,
    )


def whole_numbers(rows: int, channels: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    """Products and sums of these are exact, and tie often."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-1, 2, (rows, channels), generator=generator).to(dtype)


def native_step(sequences: ops.Sequences, x: Tensor, weight: Tensor, readout: str) -> list[Tensor]:
    """Ranks, convolves, and goes back: everything that the layer asks of the backend."""
    native = ops.choose_backend("native", x)
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    ranking = native.score_and_rank(x.detach(), x.detach(), sequences)
    out = getattr(native, f"convolve_{readout}")(x, weight, ranking.layout)
    out = out[0] if readout == "max" else out
    return [*ranking, out.detach(), *torch.autograd.grad(out.square().sum(), [x, weight])]


def assert_same_ranking(found: ops.Ranking | ops.Positions, expected: ops.Ranking | ops.Positions) -> None:
    """The same nodes, scores and entries, to the last bit."""
    for name, a, b in zip(("node", "score", "entry"), found, expected, strict=True):
        assert torch.equal(a, b), name
