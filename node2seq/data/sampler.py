"""Mini-batches: a sampler of neighbours for PyG's ``NodeLoader``, and the order of the seed nodes.

Everything random is a function of (seed, epoch, node, hop), so the same seed gives the same batches with any
number of workers, and a resumed run gives the batches of an undisturbed one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput

from node2seq.data.shared_memory import SharedMemoryTransform
from node2seq.errors import Node2SeqError
from node2seq.ops.sampling import Array, draw, fastest_sampler, hop_key, node_words
from node2seq.options import check_choice

# Numbers of hops are small: what shuffles the seed nodes is drawn apart from them.
_SHUFFLE = -1


class NeighbourSampler(BaseSampler):
    """Draws up to ``fanout`` edges into each node, hop by hop: uniformly and without replacement.

    Made for :class:`torch_geometric.loader.NodeLoader`; what it returns has ``num_sampled_nodes`` and
    ``num_sampled_edges``, so :meth:`torch_geometric.utils.trim_to_layer` works. Loops compiled by numba and
    plain numpy draw the same neighbours.

    With ``edge_time``, ``order="latest"`` takes a node's latest edges instead of random ones. If the seed
    nodes have times too (``input_time`` of the loader), no edge that is newer than its seed node is drawn,
    and each seed node has a graph of its own, as in PyG.

    Args:
        colptr: Where the edges into each node start, [N + 1]. A tensor or an array, memory-mapped or not.
        row: The source of each edge, [E]; within a node by ascending time, if there are times.
        fanout: How many edges each node has at most, for each hop; −1: all of them.
        edge_id: The edge at each position of ``row`` as the graph numbers it; None: the position.
        edge_time: The time of each edge, in the order of ``row``.
        order: ``"uniform"`` or ``"latest"``.
        seed: What the draws are a function of, besides the epoch, the node and the hop.
        backend: ``"auto"``, or ``"plain"`` for numpy even where numba is installed.
    """

    def __init__(
        self,
        colptr: Tensor | Array,
        row: Tensor | Array,
        fanout: Sequence[int],
        *,
        edge_id: Tensor | None = None,
        edge_time: Tensor | Array | None = None,
        order: Literal["uniform", "latest"] = "uniform",
        seed: int = 0,
        backend: Literal["auto", "plain"] = "auto",
    ) -> None:
        check_choice("order", order, ("uniform", "latest"))
        check_choice("backend", backend, ("auto", "plain"))
        self.fanout = check_fanout(fanout)
        self.colptr, self.row = _as_array(colptr), _as_array(row)
        self.edge_id, self.order, self.seed, self.backend = edge_id, order, seed, backend
        self.edge_time = None if edge_time is None else _as_array(edge_time)
        if order == "latest" and self.edge_time is None:
            raise Node2SeqError("order='latest'", "the edges have no times", "Pass edge_time")
        # Shared, so that workers that stay alive see the epoch change.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    @classmethod
    def from_edges(
        cls,
        edge_index: Tensor,
        num_nodes: int,
        fanout: Sequence[int],
        *,
        edge_time: Tensor | None = None,
        **kwargs: Any,
    ) -> NeighbourSampler:
        """A sampler of a graph in memory.

        Args:
            edge_index: Its edges, [2, E].
            num_nodes: Its nodes.
            fanout: How many edges each node has at most, for each hop.
            edge_time: The time of each edge, in the order of ``edge_index``.
            **kwargs: ``order``, ``seed`` and ``backend``.
        """
        edge_time = None if edge_time is None else edge_time.cpu()
        colptr, row, edge_id = compressed(edge_index.cpu(), num_nodes, edge_time)
        ordered = None if edge_time is None else edge_time[edge_id]
        return cls(colptr, row, fanout, edge_id=edge_id, edge_time=ordered, **kwargs)

    @property
    def num_nodes(self) -> int:
        """The nodes of the graph."""
        return self.colptr.size - 1

    @property
    def epoch(self) -> int:
        """The epoch whose batches are drawn; set it before the loader is iterated."""
        return int(self._epoch)

    @epoch.setter
    def epoch(self, number: int) -> None:
        self._epoch.fill_(number)

    @property
    def edge_permutation(self) -> Tensor | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The edge at each position of ``row``, for the loader."""
        return self.edge_id

    def sample_from_nodes(self, inputs: NodeSamplerInput, **_: Any) -> SamplerOutput:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The graph around some seed nodes, which come first in it."""
        seeds = inputs.node.numpy(force=True).astype(np.int64, copy=False)
        if seeds.size and (seeds.min() < 0 or seeds.max() >= self.num_nodes):
            wrong = int(seeds.min() if seeds.min() < 0 else seeds.max())
            raise Node2SeqError(
                f"seed node {wrong}", f"the nodes are 0 to {self.num_nodes - 1}", "Give nodes of this graph"
            )
        if inputs.time is not None and self.edge_time is None:
            raise Node2SeqError(
                "input_time", "the edges have no times to compare with", "Pass edge_time to the sampler"
            )
        found = (
            self._sample(seeds)
            if inputs.time is None
            else self._sample_until(seeds, inputs.time.numpy(force=True))
        )
        found.metadata = (inputs.input_id, inputs.time)
        return found

    def sample_from_edges(self, *_: Any, **__: Any) -> Any:
        """Not offered: this package predicts nodes."""
        raise Node2SeqError("sample_from_edges", "only nodes are sampled around", "Use sample_from_nodes")

    def _sample(self, seeds: Array) -> SamplerOutput:
        place = self._place
        sample_hop, latest = fastest_sampler(self.backend), self.order == "latest"
        nodes, hops = [seeds], []
        place[seeds] = np.arange(seeds.size)
        first = 0
        try:
            for number, fanout in enumerate(self.fanout):
                key = hop_key(self.seed, self.epoch, number)
                hop = sample_hop(self.colptr, self.row, nodes[-1], first, fanout, key, latest, place)
                first += nodes[-1].size
                nodes.append(hop.node)
                hops.append(hop)
        finally:
            for part in nodes:
                place[part] = -1
        parts = (np.concatenate([hop[i] for hop in hops]) for i in (1, 2, 3))
        sources, targets, edges = map(torch.from_numpy, parts)
        return SamplerOutput(
            node=torch.from_numpy(np.concatenate(nodes)),
            row=sources,
            col=targets,
            edge=edges,
            num_sampled_nodes=[part.size for part in nodes],
            num_sampled_edges=[hop.edge.size for hop in hops],
        )

    @cached_property
    def _place(self) -> Array:
        """The number of each node in the batch that is being drawn, −1 before; a table of this process."""
        return np.full(self.num_nodes, -1, dtype=np.int64)

    def _sample_until(self, seeds: Array, times: Array) -> SamplerOutput:
        """A graph of its own for each seed node, without edges that are newer than the seed node."""
        node, graph = seeds, np.arange(seeds.size)
        first, sizes, hops = 0, [seeds.size], []
        for number, fanout in enumerate(self.fanout):
            frontier, own = node[first:], graph[first:]
            start = self.colptr[frontier]
            length = self._count_until(start, self.colptr[frontier + 1], times[own])
            key = hop_key(self.seed, self.epoch, number)
            edge, count = draw(start, length, frontier, fanout, key, self.order == "latest")
            drawn, into = self.row[edge].astype(np.int64), np.repeat(own, count)
            # A node is known by its graph and its id. Those there are come first, so they keep their numbers.
            pairs = np.concatenate([graph * self.num_nodes + node, into * self.num_nodes + drawn])
            _, where, which = np.unique(pairs, return_index=True, return_inverse=True)
            place = np.empty_like(where)
            place[np.argsort(where)] = np.arange(where.size)
            kept = np.sort(where)[node.size :] - node.size
            target = np.repeat(np.arange(first, node.size), count)
            hops.append((place[which[node.size :]], target, edge))
            first = node.size
            node, graph = np.concatenate([node, drawn[kept]]), np.concatenate([graph, into[kept]])
            sizes.append(kept.size)
        sources, targets, edges = (
            torch.from_numpy(np.concatenate([hop[i] for hop in hops])) for i in range(3)
        )
        return SamplerOutput(
            node=torch.from_numpy(node),
            row=sources,
            col=targets,
            edge=edges,
            batch=torch.from_numpy(graph),
            num_sampled_nodes=sizes,
            num_sampled_edges=[edge.size for _, _, edge in hops],
        )

    def _count_until(self, start: Array, end: Array, time: Array) -> Array:
        """How many edges from ``start`` on are not newer than ``time``, for many nodes at once."""
        assert self.edge_time is not None
        low, high = start.copy(), end.copy()
        while (searching := low < high).any():
            middle = (low + high) // 2
            old = searching & (self.edge_time[np.where(searching, middle, 0)] <= time)
            low = np.where(old, middle + 1, low)
            high = np.where(searching & ~old, middle, high)
        return low - start

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_place"}


class SeedBatches(Sampler[list[int]]):
    """The seed nodes of each batch, in an order that is a function of (seed, epoch).

    Args:
        nodes: The seed nodes.
        batch_size: How many there are in a batch; the last one may have fewer.
        seed: What the order is a function of, besides the epoch.
        shuffle: Whether to shuffle them.
        share: Which process of how many takes its nodes of each batch; one that has none takes the first.
    """

    def __init__(
        self,
        nodes: Tensor,
        batch_size: int,
        seed: int = 0,
        *,
        shuffle: bool = True,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        self.nodes, self.batch_size, self.seed, self.shuffle = (
            nodes,
            check_batch_size(batch_size),
            seed,
            shuffle,
        )
        self.epoch, self.share = 0, share

    def __len__(self) -> int:
        return -(-self.nodes.numel() // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        """Lists of places in ``nodes``."""
        rank, size = self.share
        for batch in self.whole():
            yield batch[rank::size] or batch[:1]

    def whole(self) -> Iterator[list[int]]:
        """The same, whoever takes them."""
        order = np.arange(self.nodes.numel())
        if self.shuffle:  # by a word for each node, which is a function of its id, the seed and the epoch
            words = node_words(hop_key(self.seed, self.epoch, _SHUFFLE), self.nodes.numpy(force=True))
            order = np.argsort(words, kind="stable")
        for start in range(0, order.size, self.batch_size):
            yield order[start : start + self.batch_size].tolist()


def batch_loader(
    sampler: NeighbourSampler,
    batches: SeedBatches,
    read: Callable[[Data], Data],
    *,
    workers: int = 0,
    input_time: Tensor | None = None,
) -> NodeLoader:
    """PyG's loader over the batches of one epoch after the other.

    Args:
        sampler: Draws the neighbours.
        batches: The seed nodes.
        read: Adds what the model reads to a batch, by its ``n_id`` and ``e_id``. Runs in the workers. Rows
            that :func:`node2seq.data.shared_memory.take_rows` takes are written once.
        workers: Processes that draw and read batches beside this one; they stay alive between epochs.
        input_time: The time of each seed node.
    """
    # The graph's own edges stay in the sampler: the loader only has to know that there are some.
    graph = Data(edge_index=torch.empty(2, 0, dtype=torch.int64), num_nodes=sampler.num_nodes)
    return NodeLoader(
        graph,
        sampler,
        input_nodes=batches.nodes,
        input_time=input_time,
        transform=SharedMemoryTransform(read) if workers else read,
        filter_per_worker=True,
        batch_sampler=batches,
        num_workers=workers,
        persistent_workers=workers > 0,
        # Otherwise each epoch would draw a number from the generator that everything else draws from.
        generator=torch.Generator(),
    )


def compressed(
    edge_index: Tensor, num_nodes: int, edge_time: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Where the edges into each node start, the sources of the edges in that order, and their ids.

    Args:
        edge_index: The edges, [2, E].
        num_nodes: How many nodes there are.
        edge_time: The edges of a node are sorted by it, ascending; by their ids without it. It lies where
            they do.
    """
    source, target = edge_index
    if edge_time is None:
        edge_id = target.argsort(stable=True)
    else:
        edge_id = edge_time.argsort(stable=True)
        edge_id = edge_id[target[edge_id].argsort(stable=True)]
    colptr = target.new_zeros(num_nodes + 1)
    torch.cumsum(torch.bincount(target, minlength=num_nodes), 0, out=colptr[1:])
    return colptr, source[edge_id].contiguous(), edge_id


def check_fanout(fanout: Sequence[int]) -> tuple[int, ...]:
    """Refuse numbers of neighbours that nothing can be drawn with."""
    shown = ",".join(map(str, fanout))
    if not len(fanout):
        raise Node2SeqError("an empty fanout", "each layer needs a number", "Give a list such as 10,10")
    for number in fanout:
        if number == 0 or number < -1:
            raise Node2SeqError(
                f"fanout {shown}",
                f"{number} is no number of neighbours",
                "Give 1 or more for each layer, or -1 for all neighbours",
            )
    return tuple(fanout)


def check_batch_size(batch_size: int) -> int:
    """Refuse batches without nodes."""
    if batch_size < 1:
        raise Node2SeqError(
            f"batch size {batch_size}", "a batch needs at least one node", "Give 1 or more, such as 1024"
        )
    return batch_size


def _as_array(values: Tensor | Array) -> Array:
    """An array on the same memory; of a memory-mapped one a plain view, which numba takes too."""
    return values.numpy(force=True) if isinstance(values, Tensor) else np.asarray(values)
