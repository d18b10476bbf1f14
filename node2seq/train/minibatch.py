"""One run on mini-batches: the same trainer, with a step for each batch of training nodes.

Validation, early stopping, checkpoints and results are those of the full batch. What the weights give is
worked out exactly, layer by layer. A graph that stays on disk is the exception: an exact pass over it would
keep a table of all nodes for each layer. So the nodes of its split are measured as they are trained on: with
as many neighbours as the batches draw, the same in each epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from node2seq.data.loading import normalize_features
from node2seq.data.sampler import SeedBatches, batch_loader
from node2seq.data.store import StoredGraph
from node2seq.environment import Processes, release_freed_memory
from node2seq.nn.conv.base import Whole
from node2seq.nn.models.network import Network, hops_of_network
from node2seq.train.batches import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_FANOUT,
    BatchGraph,
    MiniBatches,
    check_batches,
    check_processes,
    with_fanout,
)
from node2seq.train.inference import embedding_of, infer_by_layers
from node2seq.train.inputs import (
    SplitLike,
    check_features,
    check_split,
    edge_values,
    graph_tensors,
    split_parts,
)
from node2seq.train.measured import Measured
from node2seq.train.progress import BatchProgress, OnBatch
from node2seq.train.settings import BatchSettings, TrainSettings
from node2seq.train.task import Task
from node2seq.train.trainer import Trainer, infer

# What is measured is drawn apart from the batches of every epoch.
_MEASURED = -1
# By default, about so many nodes are read for each seed node.
_NODES_PER_SEED = 128
# Batches between two times that freed memory is given back to the system.
_RELEASE_EVERY = 8


class BatchTrainer(Trainer):
    """Trains one network on mini-batches; the graph stays in main memory.

    Args:
        model: A network of this package.
        data: See :class:`Trainer`.
        split: The nodes of the run.
        settings: How it is trained. What views disagree about is counted on the nodes of a batch.
        batches: The sizes of the batches, and whether the learning rate is scaled by them.
        seed: What is drawn is a function of it, the epoch and the nodes.
        processes: Those that train this run together, each with its share of every batch. Their losses and
            steps are those of one process up to rounding.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        split: SplitLike,
        settings: TrainSettings,
        batches: BatchSettings,
        seed: int = 0,
        processes: Processes | None = None,
    ) -> None:
        self._processes = processes or Processes()
        self.on_batch: OnBatch | None = None
        """Called after every batch."""
        check_batches(model, batches, edge_values(model, data))
        check_processes(model, self._processes)
        self._processes.copy_first_(model.state_dict().values())
        settings = replace(settings, lr=batches.lr(settings.lr, split.train.numel()))
        super().__init__(model, data, [split], [settings], capture=False)
        batches = with_fanout(batches, model, len(self._graph.row))
        train = self._ids(self.runs[0].nodes["train"]).cpu()
        self._batches = MiniBatches(self._graph, train, batches, seed, self._processes)

    def _read_graph(self, data: Data) -> None:
        x, edge_index, y = graph_tensors(self.model, data, device=torch.device("cpu"))
        check_features(x)
        self.x, self.edge_index, self.edge_values = x, edge_index, {}
        assert isinstance(self.model, Network)
        self._graph = _graph_in_memory(self.model, data, self._processes)
        self.y = y.to(next(self.model.parameters()).device)

    @property
    def drawn_on(self) -> torch.device:
        """Where batches are drawn."""
        return self._graph.device

    def _ids(self, places: Tensor) -> Tensor:
        """The ids of nodes by their places among those that the trainer knows: here all of them."""
        return places

    def _train_epoch(self) -> Tensor:
        device, views = self.y.device, self.runs[0].settings.views
        total, count = torch.zeros(1, dtype=torch.float64, device=device), 0
        for part, x in self._batches.of_epoch(self.epoch):
            part, x = part.to(device), x.to(device)
            seeds = part.n_id[part.seeds]
            self._optimizer.zero_grad()
            outputs = [self.model(x, part.edges, n_id=part.n_id)[part.seeds][None] for _ in range(views)]
            if self.epoch == 0 and not count:
                self.task.check_outputs(outputs[0], self.y)
            nodes, objective = seeds.numel(), self._objective
            if part.whole is None:
                objective = objective.of_batch(seeds, self.y)
            else:
                nodes = part.whole.numel()
                objective = objective.of_share(seeds, part.count, part.whole, self.y)
            losses = self._step(objective, outputs, self._optimizer.steps)
            total += losses.double() * nodes
            count += nodes
            self._tell("training", count, self.runs[0].nodes["train"].numel())
        self._processes.sum_(total)
        return total / count

    def _tell(self, doing: str, done: int, total: int) -> None:
        if self.on_batch is not None:
            self.on_batch(BatchProgress(self.epoch + 1, doing, done, total))

    def _sum_gradients(self) -> None:
        if self._processes.size == 1:
            return
        # One call for all, which are small here: what takes time is the call.
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        joined = torch.cat([gradient.reshape(-1) for gradient in gradients])
        self._processes.sum_(joined)
        for gradient, part in zip(gradients, joined.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def finish(self) -> None:
        """Put the best weights into the model; no more batches are drawn."""
        super().finish()
        self._batches.close()

    def _add_linear(self) -> None:
        """Nothing is added after batches: the linear part is fitted to all nodes at once."""

    def _logits(self) -> Tensor:
        device = self.y.device
        by_layers = partial(infer_by_layers, processes=self._processes)
        return infer(self.model, by_layers, self.model, self._graph, device).to(device)[None]


def _graph_in_memory(model: Network, data: Data, processes: Processes) -> BatchGraph:
    """A graph where batches are drawn from it: on the GPU that trains, if it fits there."""
    device = next(model.parameters()).device
    if device.type != "cpu" and processes.size == 1:
        from node2seq.train.device_batches import DeviceGraph, fits_on

        if fits_on(device, model, data):
            return DeviceGraph.of(model, data)
    return BatchGraph.of(model, data)


def fanout_for_store(hops: int) -> tuple[int, ...]:
    """How many neighbours are drawn for each hop where nobody says: fewer, the more hops there are."""
    return (min(DEFAULT_FANOUT, round(_NODES_PER_SEED ** (1 / max(hops, 1)))),) * max(hops, 1)


def batches_for_store(model: nn.Module, asked: BatchSettings | None) -> BatchSettings:
    """The mini-batches of a graph on disk, with the sizes that nobody gave."""
    asked = asked or BatchSettings(DEFAULT_BATCH_SIZE)
    return replace(asked, fanout=asked.fanout or fanout_for_store(hops_of_network(model)))


def graph_on_disk(model: nn.Module, store: StoredGraph, row_normalize: bool = False) -> BatchGraph:
    """A stored graph as mini-batches read it; of each node, only its degree is in memory.

    Args:
        model: What reads it.
        store: The graph.
        row_normalize: Divide each node's features by their sum.
    """
    into, out = store.degrees(torch.arange(store.num_nodes))
    own = torch.full((1,), float(getattr(model, "self_loops", True)), dtype=torch.float64)
    whole = Whole(into, out, own.expand(store.num_nodes))
    features = partial(_normalized_features, store) if row_normalize else store.features
    return BatchGraph(store.colptr, store.row, features, {}, whole)


def _normalized_features(store: StoredGraph, nodes: Tensor) -> Tensor:
    return normalize_features(store.features(nodes))


@torch.no_grad()
def infer_by_batches(
    call: Callable[..., Tensor],
    graph: BatchGraph,
    nodes: Tensor,
    batches: BatchSettings,
    seed: int,
    device: torch.device,
    report: Callable[[int], None] | None = None,
    processes: Processes | None = None,
) -> Tensor:
    """What a network gives for some nodes from drawn neighbours, [nodes, outputs].

    Args:
        call: The network, or its ``embed``, in evaluation mode.
        graph: The graph.
        nodes: Their ids.
        batches: How many neighbours are drawn.
        seed: What is drawn is a function of it and the nodes.
        device: Where to compute.
        report: Called with the number of nodes so far.
        processes: Those that the batches are divided among; each ends with the rows of all nodes.
    """
    processes = processes or Processes()
    assert batches.fanout is not None
    sampler = graph.sampler(batches.fanout, seed)
    sampler.epoch = _MEASURED
    chunks = torch.arange(nodes.numel()).split(batches.batch_size)
    # One without a batch takes the first, to know the shape of the rows.
    own = torch.cat(chunks[processes.rank :: processes.size] or chunks[:1])
    order = SeedBatches(nodes[own], batches.batch_size, seed, shuffle=False)
    found, done = [], 0
    for part, x in batch_loader(sampler, order, graph.read, workers=batches.workers):
        part = part.to(device)
        found.append(call(x.to(device), part.edges, n_id=part.n_id)[part.seeds])
        done += part.seeds.numel()
        if report is not None:
            report(min(done * processes.size, nodes.numel()))
    rows = torch.cat(found)
    if processes.size == 1:
        return rows
    table = rows.new_zeros(nodes.numel(), rows.size(-1))
    table[own.to(rows.device)] = rows
    processes.exchange_rows_(table, ((i % processes.size, chunk) for i, chunk in enumerate(chunks)))
    return table


@dataclass(frozen=True)
class _Places:
    """A split by places among the nodes that it names."""

    train: Tensor
    val: Tensor
    test: Tensor


class StoreTrainer(BatchTrainer):
    """Trains one network on a graph that stays on disk; it knows the nodes of the split alone.

    Args:
        model: A network of this package.
        store: The graph.
        split: The nodes of the run.
        settings: How it is trained.
        batches: The sizes of the batches.
        seed: What is drawn is a function of it, the epoch and the nodes.
        processes: Those that train this run together.
        row_normalize: Divide each node's features by their sum.
    """

    def __init__(
        self,
        model: nn.Module,
        store: StoredGraph,
        split: SplitLike,
        settings: TrainSettings,
        batches: BatchSettings,
        seed: int = 0,
        processes: Processes | None = None,
        *,
        row_normalize: bool = False,
    ) -> None:
        batches = batches_for_store(model, batches)
        parts = split_parts(split, torch.device("cpu"))
        check_split(parts, store.y)
        self.nodes = torch.cat(list(parts.values())).sort().values
        places = _Places(**{name: torch.searchsorted(self.nodes, part) for name, part in parts.items()})
        # The test nodes are not looked at before training has ended.
        self._shown = torch.cat([places.train, places.val]).sort().values
        self._sizes, self._seed, self._batches_seen = batches, seed, 0
        self._graph = graph_on_disk(model, store, row_normalize)
        super().__init__(model, Data(y=store.y[self.nodes]), places, settings, batches, seed, processes)

    def _read_graph(self, data: Data) -> None:
        assert isinstance(data.y, Tensor)
        self.edge_values = {}
        self.y = data.y.to(next(self.model.parameters()).device)

    def _build(self) -> None:
        super()._build()
        self._objective.ids = self.nodes.to(self.y.device)

    def _ids(self, places: Tensor) -> Tensor:
        return self.nodes[places.cpu()]

    def _tell(self, doing: str, done: int, total: int) -> None:
        # Batches of many sizes leave gaps: on 5M nodes, 0.55 GiB became 1.4 GiB within 40 batches.
        self._batches_seen += 1
        if self._batches_seen % _RELEASE_EVERY == 0:
            release_freed_memory()
        super()._tell(doing, done, total)

    def finish(self) -> None:
        """Put the best weights into the model; from now on the test nodes are looked at."""
        super().finish()
        self._shown = torch.arange(self.nodes.numel())

    def _logits(self) -> Tensor:
        """What the model gives with the weights that it has, [1, nodes of the split, classes]."""
        device, nodes = self.y.device, self.nodes[self._shown]
        report = partial(self._tell, "measuring", total=nodes.numel())
        drawn = (self._graph, nodes, self._sizes, self._seed, device, report, self._processes)
        rows = infer(self.model, infer_by_batches, self.model, *drawn)
        found = rows.new_zeros(1, self.nodes.numel(), rows.size(-1))
        found[0, self._shown.to(device)] = rows
        return found


def evaluate_store(
    model: nn.Module,
    graph: BatchGraph,
    y: Tensor,
    parts: Mapping[str, Tensor],
    task: Task,
    batches: BatchSettings,
    seed: int,
) -> dict[str, Measured]:
    """Measure ``model`` on sets of labelled nodes of a graph on disk, which may overlap.

    Args:
        model: What is measured.
        graph: What :func:`graph_on_disk` gives.
        y: The labels of all nodes.
        parts: The nodes of each set.
        task: What is predicted.
        batches: How many neighbours are drawn.
        seed: That of the run.
    """
    for name, index in parts.items():
        check_split({name: index}, y)
    nodes = torch.cat(list(parts.values())).unique()
    outputs = predict_store(model, graph, nodes, batches, seed)
    device = outputs.device
    places = {name: torch.searchsorted(nodes, index).to(device) for name, index in parts.items()}
    return {name: task.measure(outputs[at], y[parts[name]].to(device)) for name, at in places.items()}


def predict_store(
    model: nn.Module,
    graph: BatchGraph,
    nodes: Tensor,
    batches: BatchSettings,
    seed: int,
    *,
    embed: bool = False,
) -> Tensor:
    """What ``model`` gives for some nodes of a graph on disk, or their embeddings."""
    call, device = embedding_of(model) if embed else model, next(model.parameters()).device
    return infer(model, infer_by_batches, call, graph, nodes, batches, seed, device)
