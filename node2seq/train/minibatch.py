"""One run on mini-batches: the same trainer, with a step for each batch of training nodes.

Validation, early stopping, checkpoints and results are those of the full batch. What the weights give is
worked out exactly, layer by layer.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from node2seq.environment import Processes
from node2seq.nn.models.network import Network
from node2seq.train.batches import BatchGraph, MiniBatches, check_batches, check_processes, with_fanout
from node2seq.train.inputs import SplitLike, check_features, edge_values, graph_tensors
from node2seq.train.layerwise import infer_by_layers
from node2seq.train.progress import BatchProgress, OnBatch
from node2seq.train.settings import BatchSettings, TrainSettings
from node2seq.train.trainer import Trainer, infer


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
        batches = with_fanout(batches, model, self._graph.row.size)
        train = self._ids(self.runs[0].nodes["train"]).cpu()
        self._batches = MiniBatches(self._graph, train, batches, seed, self._processes)

    def _read_graph(self, data: Data) -> None:
        x, edge_index, y = graph_tensors(self.model, data, device=torch.device("cpu"))
        check_features(x)
        self.x, self.edge_index, self.edge_values = x, edge_index, {}
        assert isinstance(self.model, Network)
        self._graph = BatchGraph.of(self.model, data)
        self.y = y.to(next(self.model.parameters()).device)

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
            if part.share is None:
                objective = objective.of_batch(seeds, self.y)
            else:
                nodes = part.share.whole.numel()
                objective = objective.of_share(seeds, part.share.count, part.share.whole, self.y)
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

    def _logits(self) -> Tensor:
        device = self.y.device
        by_layers = partial(infer_by_layers, processes=self._processes)
        return infer(self.model, by_layers, self.model, self._graph, device).to(device)[None]
