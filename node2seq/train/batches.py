"""A graph as mini-batches read it: its edges by target, and features by the ids of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.sampler import NodeSamplerInput

from node2seq.data.graph import tensors_of
from node2seq.data.sampler import NeighbourSampler, SeedBatches, batch_loader, compressed
from node2seq.data.shared_memory import take_rows
from node2seq.environment import Processes
from node2seq.errors import Node2SeqError
from node2seq.nn.conv.base import Whole
from node2seq.nn.conv.cheb import ChebConv
from node2seq.nn.conv.node2seq import Node2SeqConv
from node2seq.nn.models import MODELS
from node2seq.nn.models.network import Edges, Network, hops_of_network
from node2seq.ops import SparseRows
from node2seq.ops.sampling import Array
from node2seq.options import check_rules
from node2seq.train.inputs import edge_values, features_for
from node2seq.train.settings import BatchSettings

Features = Tensor | SparseRows

# What networks call their edges' values, by the field of Edges.
_FIELDS = {"edge_weight": "weight", "edge_attr": "attr", "edge_order": "order"}
# Of a pass over all nodes: so many nodes, or edges into them, at a time.
CHUNK_NODES, CHUNK_EDGES = 2**16, 2**20
DEFAULT_BATCH_SIZE, DEFAULT_FANOUT = 1024, 10


@dataclass(frozen=True)
class BatchGraph:
    """A graph that is read part by part; its arrays may be mapped from disk.

    Args:
        colptr: Where the edges into each node start, [N + 1].
        row: The source of each edge.
        features: The features of nodes by their ids.
        carried: What edges carry, by its name and the position of the edges in ``row``.
        whole: The degrees of all nodes.
        edge_time: The time of each edge in the order of ``row``, ascending for each node; None: none.
    """

    colptr: Any
    row: Any
    features: Callable[[Tensor], Features]
    carried: Mapping[str, Callable[[Tensor], Tensor]]
    whole: Whole
    edge_time: Any = None

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return len(self.colptr) - 1

    @property
    def device(self) -> torch.device:
        """Where batches are drawn and features are read."""
        return torch.device("cpu")

    @classmethod
    def of(cls, model: Network, data: Data) -> Self:
        """A graph in memory, with what a network reads of its edges."""
        x, edge_index = tensors_of(data)
        values = {name: tensor.cpu() for name, tensor in edge_values(model, data).items()}
        edge_index, nodes, time = edge_index.cpu(), x.size(0), values.get("edge_order")
        colptr, row, edge_id = compressed(edge_index, nodes, time)
        # On a GPU, each batch would need a plan of its own to multiply them.
        on_cpu = next(model.parameters()).device.type == "cpu"
        features = features_for(model, x.cpu()) if on_cpu else x.cpu()
        return cls(
            colptr.numpy(),
            row.numpy(),
            # A worker writes the rows that it takes to shared memory at once.
            features.take if isinstance(features, SparseRows) else partial(take_rows, features),
            {name: partial(take_rows, tensor[edge_id]) for name, tensor in values.items()},
            whole_of(model, edge_index, nodes, values.get("edge_weight")),
            None if time is None else time[edge_id].numpy(),
        )

    def sampler(self, fanout: tuple[int, ...], seed: int = 0) -> Any:
        """Draws neighbours at random; where edges have an order, the first by it."""
        order = "uniform" if self.edge_time is None else "latest"
        return NeighbourSampler(
            self.colptr, self.row, fanout, edge_time=self.edge_time, order=order, seed=seed
        )

    def loader(self, sampler: Any, order: SeedBatches, read: Callable[[Any], Any], workers: int) -> Any:
        """The batches of one epoch after the other."""
        return batch_loader(sampler, order, read, workers=workers)

    def starts(self) -> Array:
        """Where the edges into each node start, in main memory."""
        return self.colptr

    def chunks(self, least: int = 1) -> Iterator[Tensor]:
        """All nodes in parts of a bounded number of nodes and, but for single nodes, of edges into them.

        Args:
            least: How many parts there are at least, where there are as many nodes.
        """
        nodes, starts = min(CHUNK_NODES, max(self.num_nodes // least, 1)), self.starts()
        first = 0
        while first < self.num_nodes:
            most = int(np.searchsorted(starts, starts[first] + CHUNK_EDGES, side="right")) - 1
            last = min(max(most, first + 1), first + nodes, self.num_nodes)
            yield torch.arange(first, last)
            first = last

    def around(self, nodes: Tensor, hops: int) -> Subgraph:
        """Some nodes with all their neighbours."""
        found = self.sampler((-1,) * hops).sample_from_nodes(NodeSamplerInput(None, nodes))
        assert found.edge is not None
        edge_index = torch.stack([found.row, found.col])
        return self._subgraph(found.node, edge_index, found.edge, torch.arange(nodes.numel()))

    def read(self, batch: Any) -> Any:
        """The part of the graph that a batch holds, and its features. Runs in the workers."""
        part = self._subgraph(batch.n_id, batch.edge_index, batch.e_id, torch.arange(batch.batch_size))
        return part, self.features(part.n_id)

    def read_share(self, batch: Any, rank: int, size: int) -> Any:
        """The same for those seed nodes of a batch that one of several processes takes.

        What is drawn for a node depends on the hop at which the batch first meets it, and so on all seed
        nodes: every process draws the whole batch, and reads what its own seed nodes need.
        """
        seeds, (source, target) = torch.arange(batch.batch_size), batch.edge_index
        own = seeds[rank::size] if rank < seeds.numel() else seeds[:1]
        reached = torch.zeros(batch.n_id.numel(), dtype=torch.bool)
        reached[own] = True
        kept = reached[target]
        for _ in batch.num_sampled_edges[1:]:
            reached[source[kept]] = True
            kept = reached[target]
        reached[source[kept]] = True
        place = torch.cumsum(reached, 0) - 1
        part = self._subgraph(
            batch.n_id[reached], place[batch.edge_index[:, kept]], batch.e_id[kept], place[own]
        )
        whole = batch.n_id[: batch.batch_size]
        return replace(part, whole=whole, count=whole[rank::size].numel()), self.features(part.n_id)

    def _subgraph(self, n_id: Tensor, edge_index: Tensor, edge: Tensor, seeds: Tensor) -> Subgraph:
        # In the order of their ids: equal scores are sorted by them, here as in the whole graph.
        order = n_id.argsort()
        place = torch.empty_like(order)
        place[order] = torch.arange(order.numel(), device=order.device)
        n_id = n_id[order]
        values: dict[str, Any] = {_FIELDS[name]: read(edge) for name, read in self.carried.items()}
        return Subgraph(n_id, Edges(place[edge_index], **values, whole=self.whole.take(n_id)), place[seeds])


def whole_of(model: Network, edge_index: Tensor, nodes: int, edge_weight: Tensor | None) -> Whole:
    """The degrees of all nodes of a graph as a network counts them."""
    return Whole.of(edge_index, nodes, edge_weight, bool(getattr(model, "self_loops", True)))


@dataclass(frozen=True)
class Subgraph:
    """A part of a graph, with which of its nodes it was drawn for.

    Args:
        n_id: The ids of its nodes, ascending.
        edges: The edges between them.
        seeds: The places of the nodes that it was drawn for.
        whole: The ids of all seed nodes of the batch, if several processes train on it.
        count: How many of them this process has. One that has none is given the first, which counts for
            nothing: it runs the network all the same, so that dropout counts the same steps everywhere.
    """

    n_id: Tensor
    edges: Edges
    seeds: Tensor
    whole: Tensor | None = None
    count: int = 0

    def to(self, device: torch.device) -> Subgraph:
        """The same on a device."""
        whole = None if self.whole is None else self.whole.to(device)
        own = (self.n_id.to(device), self.edges.to(device), self.seeds.to(device))
        return Subgraph(*own, whole, self.count)


class MiniBatches:
    """The batches of each epoch.

    Args:
        graph: What they are drawn from.
        nodes: The nodes to train on.
        settings: Their sizes.
        seed: What they are a function of, besides the epoch.
        processes: Those that the nodes of each batch are divided among.
    """

    def __init__(
        self,
        graph: BatchGraph,
        nodes: Tensor,
        settings: BatchSettings,
        seed: int,
        processes: Processes,
    ) -> None:
        assert settings.fanout is not None
        self._sampler = graph.sampler(settings.fanout, seed)
        share = (processes.rank, processes.size)
        self._apart = processes.size > 1 and processes.draws_own
        drawn = share if self._apart else (0, 1)
        self._order = SeedBatches(nodes, settings.batch_size, seed, share=drawn)
        read = graph.read
        if processes.size > 1 and not self._apart:
            read = partial(graph.read_share, rank=share[0], size=share[1])
        self._loader = graph.loader(self._sampler, self._order, read, settings.workers)

    def of_epoch(self, epoch: int) -> Iterator[tuple[Subgraph, Features]]:
        """Each batch and its features."""
        self._sampler.epoch = self._order.epoch = epoch
        if not self._apart:
            yield from self._loader  # pyright: ignore[reportReturnType]
            return
        rank, size = self._order.share
        for (part, x), places in zip(self._loader, self._order.whole(), strict=True):
            yield replace(part, whole=self._order.nodes[places], count=len(places[rank::size])), x

    def close(self) -> None:
        """End the workers; they start anew if more batches are asked for.

        Workers that are forked while others wait would try to end these, and complain.
        """
        self._loader._iterator = None


def check_batches(model: nn.Module, settings: BatchSettings, carried: Mapping[str, Any]) -> None:
    """Refuse a network that cannot be trained on mini-batches, and a fanout that does not fit it."""
    check_parts(model, carried)
    hops, fanout = hops_of_network(model), settings.fanout
    if fanout is None and not hops:
        raise Node2SeqError(
            f"mini-batches with {type(model).__name__}", "it reads no neighbours", "Train full batch"
        )
    if fanout is not None and hops != len(fanout):
        shown = ",".join(map(str, fanout))
        numbers, reads = _count(len(fanout), "number"), _count(hops, "hop")
        cure = f"Give one number for each hop, such as {','.join(['10'] * hops)}"
        raise Node2SeqError(
            f"fanout {shown}",
            f"it has {numbers}, and this network reads {reads}",
            cure if hops else "Train full batch",
        )


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def check_parts(model: nn.Module, carried: Mapping[str, Any]) -> None:
    """Refuse a network that needs the whole graph at once."""
    layers = list(model.modules())
    convs = [layer for layer in layers if isinstance(layer, Node2SeqConv)]
    hops, orders = max((conv.hops for conv in convs), default=1), {conv.order for conv in convs}
    has_filters = any(isinstance(layer, ChebConv) for layer in layers)
    check_rules(
        (
            isinstance(model, Network),
            f"mini-batches with {type(model).__name__}",
            "it is not a network of this package, so that its layers are not known",
            "Train full batch, or use NeighbourSampler with PyG's NodeLoader",
        ),
        (
            hops == 1,
            f"mini-batches with hops={hops}",
            "the nodes within several hops are chosen in the whole graph, and a batch holds a part of it",
            "Train with hops=1, or full batch",
        ),
        *(
            (
                order not in orders,
                f"mini-batches with order={order!r}",
                "this order is one of the whole graph, and a batch holds a part of it",
                "Train with order='attention' or 'edge', or full batch",
            )
            for order in ("degree", "random")
        ),
        (
            not getattr(model, "directed", False),
            "mini-batches with directed=True",
            "batches hold the edges into their nodes, not those that leave them",
            "Train with directed=False, or full batch",
        ),
        (
            not has_filters or "edge_weight" not in carried,
            "mini-batches with weighted edges and Cheby",
            "its filters are scaled by the largest weight of the whole graph",
            "Leave out the weights, use another model, or train full batch",
        ),
    )


def check_processes(model: nn.Module, processes: Processes) -> None:
    """Refuse a network that several processes would train differently from one."""
    if processes.size > 1 and any(isinstance(layer, nn.BatchNorm1d) for layer in model.modules()):
        raise Node2SeqError(
            f"{type(model).__name__} with {processes.size} processes",
            "it normalises over the nodes of a batch, and each process has some of them",
            "Train it with one process, or take a network without batch normalisation",
        )


def hops_of_options(name: str, options: Any) -> int:
    """The same for a network that is not made yet, by its name and its ``Options``."""
    with torch.device("meta"):  # no memory, and no random numbers
        return hops_of_network(MODELS[name].with_options(1, 1, options))


def with_fanout(batches: BatchSettings, model: nn.Module, edges: int) -> BatchSettings:
    """The mini-batches with a fanout, where nobody gave one: all neighbours, if the graph has few edges.

    A batch is then no larger than a chunk of the exact pass after each epoch. What is drawn costs accuracy
    where nodes have many neighbours: on Squirrel at a rate of 0.004, 46.9 % of the validation nodes are right
    with 10 neighbours after 193 epochs, and 50.2 % with all after 100.

    Args:
        batches: What was asked for.
        model: Reads so many hops.
        edges: Those of the graph.
    """
    hops = hops_of_network(model)
    if batches.fanout is not None or not hops:
        return batches
    return replace(batches, fanout=(-1 if edges <= CHUNK_EDGES else DEFAULT_FANOUT,) * hops)


def default_batches(model: nn.Module) -> BatchSettings:
    """What is taken where nobody gave sizes."""
    fanout = (DEFAULT_FANOUT,) * max(hops_of_network(model), 1)
    return BatchSettings(DEFAULT_BATCH_SIZE, fanout, scale_lr=True)


def batches_in_words(
    batches: BatchSettings,
    lr: tuple[float, float],
    processes: Processes,
    why: str,
    device: torch.device,
) -> str:
    """What to say of mini-batches: their sizes, and ``why`` they are there if nobody asked for them.

    Args:
        batches: The sizes.
        lr: The learning rate, and that of the full batch.
        processes: Those that train together.
        why: The reason, or nothing.
        device: Where they are drawn.
    """
    fanout = ", ".join("all" if number < 0 else str(number) for number in batches.fanout or ())
    text = f"mini-batches of {batches.batch_size} nodes, neighbours by hop: {fanout}"
    if lr[0] != lr[1]:
        text += f", learning rate {lr[0]:.2g} instead of {lr[1]:g}"
    if device.type != "cpu":
        text += ", drawn on the GPU"
    if processes.size > 1:
        text += f", divided among {processes.size} processes"
    return f"{text} ({why})" if why else text


def full_batch_in_words(needed: float, most: float) -> str:
    """Why a full batch may not fit into memory, in bytes."""
    needs, has = (f"{size / 2**30:,.1f} GiB" for size in (needed, most))
    return f"the full batch would take about {needs}, and there are {has}"
