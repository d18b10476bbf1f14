"""What ``readout="ranks"`` adds to the layer: scores, and heads, which read the graph once each."""

import torch
from torch import Tensor
from torch_geometric.nn import Linear
from torch_geometric.typing import Adj

from node2seq import ops
from node2seq.nn.conv.base import SequenceMessages


class RankLayer(SequenceMessages):
    """The base of a layer with ranks: what scores them, and the convolution over them."""

    kernel_size: int
    hops: int
    threshold: float | Tensor
    nonlocal_order: str
    max_candidates: int | None
    backend: str
    temperature: float
    heads: int
    lin_query: Linear | None
    lin_key: Linear | None
    lin_edge_key: Linear | None

    def _soft_ranks(
        self,
        x_src: Tensor,
        x_dst: Tensor | None,
        query: Tensor,
        key: Tensor,
        sequences: ops.Sequences,
        edges: ops.EdgeValues | None,
        edge_attr: Tensor | None,
    ) -> ops.Ranks:
        """How much of each neighbour stands at each rank, by scores of their own or by those shared."""
        heads = self.heads
        if self.lin_query is not None and self.lin_key is not None and x_dst is not None:
            query = split_heads(ops.project(self.lin_query, x_dst), heads)
            key = split_heads(ops.project(self.lin_key, x_src), heads)
            if edges is not None and self.lin_edge_key is not None and edge_attr is not None:
                attr = ops.project(self.lin_edge_key, edge_attr)
                if heads > 1:
                    attr = attr if attr.dim() == 3 else attr.expand(ops.runs_of(x_src), -1, -1)
                edges = edges._replace(attr=split_heads(attr, heads))
        return ops.soft_ranks(
            query,
            key,
            sequences,
            self.kernel_size,
            temperature=self.temperature,
            hops=self.hops,
            threshold=threshold_of_heads(self.threshold, heads) if self.hops > 1 else 0.0,
            joint=self.nonlocal_order == "joint",
            max_candidates=self.max_candidates,
            edges=edges,
            backend=self.backend,
        )

    def _convolve_ranks(
        self,
        query: Tensor,
        key: Tensor,
        sequences: ops.Sequences,
        weight: Tensor,
        ranks: ops.Ranks,
        edges: ops.EdgeValues | None,
        dtype: torch.dtype,
        edge_index: Adj | None,
    ) -> Tensor:
        """A matrix for each rank and one for the mean, of each head; by messages with an edge index."""
        heads, runs = self.heads, key.shape[:-2].numel()
        weight = taps_of_heads(weight, heads, runs)
        if edge_index is not None:
            given = (query, key, sequences, weight, ranks, heads, edges)
            out = self.convolve_ranks_by_messages(edge_index, *given)
            graphs = [runs * heads] if heads > 1 or key.dim() == 3 else []
            out = out.view(*graphs, query.size(-2), weight.size(-1))
        else:
            edges = None if edges is None else edges_of_heads(edges, heads, runs)
            out = ops.convolve_ranks(for_heads(key, heads), weight, ranks, edges, dtype)
        return join_heads(out, heads, key.dim() == 3)


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
