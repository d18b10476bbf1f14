"""Evaluate and predict with a finished run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from node2seq.data.schema import id_column
from node2seq.data.splits import labelled
from node2seq.data.store import StoredGraph
from node2seq.data.tabular import check_delimiter, find_column, open_table
from node2seq.environment import pick_device, threads_for
from node2seq.errors import Node2SeqError
from node2seq.runs.folder import RunFolder
from node2seq.runs.graph import Say, open_again, open_new
from node2seq.runs.pretrained import build_model, load_weights
from node2seq.train.inference import embed, evaluate_parts, predict
from node2seq.train.inputs import measured_parts
from node2seq.train.measured import Measured
from node2seq.train.minibatch import evaluate_store, graph_on_disk, predict_store
from node2seq.train.task import Classification, Task

_MOST_AT_ONCE = 2_000_000


def evaluate_run(path: str | Path, *, device: str = "auto", say: Say | None = None) -> dict[str, Measured]:
    """Measure the weights of a finished run again, on every part of its split."""
    folder = RunFolder(path)
    model = load_model(folder, device)
    graph = open_again(folder, say, whole=False)
    with threads_for(graph.data):
        parts = measured_parts(folder.split, with_rest=True)
        batches, task = folder.run.batches, folder.task
        if graph.store is None or batches is None:  # a graph on disk is trained on mini-batches alone
            return evaluate_parts(model, graph.data, parts, task, by_layers=batches is not None)
        disk = graph_on_disk(model, graph.store, folder.run.row_normalize)
        return evaluate_store(model, disk, graph.store.y, parts, task, batches, folder.run.seed)


@dataclass(frozen=True)
class Prediction:
    """What is predicted (and embeddings, if asked for) of every node of a graph, in its order.

    Args:
        node_ids: The nodes.
        class_names: The classes; none where numbers are predicted.
        probabilities: Of each class, [N, classes]; or the predicted numbers, [N].
        embeddings: [N, C].
    """

    node_ids: list[Any]
    class_names: list[str]
    probabilities: Tensor
    embeddings: Tensor | None
    unlabelled: list[Any] = field(default_factory=list)
    """The ids of the nodes whose label the files do not tell."""
    task: Task = field(default_factory=Classification)
    warnings: tuple[str, ...] = ()
    """What should be known about the files."""
    notes: list[str] = field(default_factory=list)
    """What reading the files of a new graph has to tell: categories that the training did not have, …"""

    @property
    def labels(self) -> list[Any]:
        """The most probable class of each node, or its number."""
        return self.task.labels(self.probabilities, self.class_names)


def predict_run(
    path: str | Path,
    *,
    edges: str | Path | None = None,
    nodes: str | Path | None = None,
    reading: Mapping[str, Any] | None = None,
    embeddings: bool = False,
    device: str = "auto",
    say: Say | None = None,
    sample: int | None = None,
) -> Prediction:
    """Predict every node of the graph a run was trained on, or of another one given as files.

    Of a graph on disk, the nodes are predicted that ``nodes`` names by their ids, or a sample of them, each
    from as many neighbours as the training drew.

    Args:
        path: The run folder.
        edges: Edges of another graph.
        nodes: Nodes of another graph.
        reading: How to read these files: ``source``, ``target``, ``id``, ``fill`` and ``delimiter`` of
            ``node2seq.data.read_graph``.
        embeddings: Whether to return the nodes' embeddings too.
        device: Where to compute.
        say: Called with a line before each step that may take a while.
        sample: The number of random nodes to predict, of a graph on disk.
    """
    folder = RunFolder(path)
    model = load_model(folder, device)
    if folder.run.source.store is not None and edges is None:
        return _predict_stored(folder, model, nodes, reading or {}, sample, embeddings, say)
    if sample is not None:
        raise Node2SeqError(
            f"sample={sample}", "it is for runs on a store; all nodes of others are predicted", "Leave it out"
        )
    own, by_layers = edges is None and nodes is None, folder.run.batches is not None
    graph = open_again(folder, say) if own else open_new(folder, edges, nodes, reading or {}, say)
    with threads_for(graph.data):
        return Prediction(
            node_ids=graph.node_ids,
            class_names=folder.config["graph"]["class_names"],
            probabilities=predict(model, graph.data, folder.calibrated_task, by_layers=by_layers).cpu(),
            embeddings=embed(model, graph.data, by_layers=by_layers).cpu() if embeddings else None,
            unlabelled=graph.unlabelled,
            task=folder.task,
            warnings=tuple(graph.report.warnings),
            notes=[] if own else list(graph.report.notes),
        )


def _predict_stored(
    folder: RunFolder,
    model: nn.Module,
    nodes: str | Path | None,
    reading: Mapping[str, Any],
    sample: int | None,
    embeddings: bool,
    say: Say | None,
) -> Prediction:
    """Predict some nodes of a graph on disk."""
    graph = open_again(folder, say, whole=False)
    assert graph.store is not None
    assert folder.run.batches is not None
    chosen = _chosen(graph.store, nodes, reading, sample)
    disk = graph_on_disk(model, graph.store, folder.run.row_normalize)
    drawn = (disk, chosen, folder.run.batches, folder.run.seed)
    outputs = predict_store(model, *drawn)
    ids, known = graph.store.ids(chosen), labelled(graph.store.y[chosen]).tolist()
    return Prediction(
        node_ids=ids,
        class_names=folder.config["graph"]["class_names"],
        probabilities=folder.calibrated_task.predict(outputs).cpu(),
        embeddings=predict_store(model, *drawn, embed=True).cpu() if embeddings else None,
        unlabelled=[name for name, has_label in zip(ids, known, strict=True) if not has_label],
        task=folder.task,
    )


def _chosen(
    store: StoredGraph, nodes: str | Path | None, reading: Mapping[str, Any], sample: int | None
) -> Tensor:
    """The nodes to predict."""
    if nodes is not None and sample is not None:
        raise Node2SeqError(
            f"{nodes} and sample={sample}", "these are two choices of nodes", "Give one of them"
        )
    if nodes is not None:
        table = open_table(nodes, reading.get("delimiter"))
        check_delimiter(reading.get("delimiter"), [table.separator])
        name = find_column(table, "id", reading.get("id"))
        return store.find(id_column(table.read([name])[name], table.title, "Give every row an id").to_list())
    if sample is None and store.num_nodes > _MOST_AT_ONCE:
        raise Node2SeqError(
            f"all {store.num_nodes} nodes of {store.path}",
            f"at most {_MOST_AT_ONCE} are predicted at once",
            "Name them with --nodes FILE, or draw some with --sample 1000",
        )
    if sample is None:
        return torch.arange(store.num_nodes)
    if not 1 <= sample <= store.num_nodes:
        raise Node2SeqError(
            f"sample={sample}", f"there are {store.num_nodes} nodes", "Give 1 or more of them"
        )
    drawn = np.random.default_rng(0).choice(store.num_nodes, sample, replace=False, shuffle=False)
    return torch.from_numpy(np.sort(drawn))


def load_model(folder: RunFolder, device: str = "auto") -> nn.Module:
    """Build a finished run's model with its chosen weights."""
    _ = folder.run  # a config.json that was edited is named before anything else
    folder.final()
    model = build_model(folder.config["model"], folder.config_file)
    load_weights(model, folder.model_file, folder.identity)
    return model.to(pick_device(device)).eval()
