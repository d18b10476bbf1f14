"""Evaluate and predict with a finished run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from node2seq.environment import pick_device, threads_for
from node2seq.runs.folder import RunFolder
from node2seq.runs.graph import Say, open_again, open_new
from node2seq.runs.pretrained import build_model, load_weights
from node2seq.train.inference import embed, evaluate_parts, predict
from node2seq.train.inputs import measured_parts
from node2seq.train.measured import Measured
from node2seq.train.task import Classification, Task


def evaluate_run(path: str | Path, *, device: str = "auto", say: Say | None = None) -> dict[str, Measured]:
    """Measure a finished run's weights anew on every part of its split."""
    folder = RunFolder(path)
    model = load_model(folder, device)
    graph = open_again(folder, say)
    with threads_for(graph.data):
        parts = measured_parts(folder.split, with_rest=True)
        by_layers = folder.run.batches is not None
        return evaluate_parts(model, graph.data, parts, folder.task, by_layers=by_layers)


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
) -> Prediction:
    """Predict every node of the graph a run was trained on, or of another one given as files.

    Args:
        path: The run folder.
        edges: Edges of another graph.
        nodes: Nodes of another graph.
        reading: How to read these files: ``source``, ``target``, ``id``, ``fill`` and ``delimiter`` of
            ``node2seq.data.read_graph``.
        embeddings: Whether to return the nodes' embeddings too.
        device: Where to compute.
        say: Called with a line before each step that may take a while.
    """
    folder = RunFolder(path)
    model = load_model(folder, device)
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
            warnings=graph.warnings,
            notes=[] if own else graph.notes,
        )


def load_model(folder: RunFolder, device: str = "auto") -> nn.Module:
    """Build a finished run's model with its chosen weights."""
    _ = folder.run  # a config.json that was edited is named before anything else
    folder.final()
    model = build_model(folder.config["model"], folder.config_file)
    load_weights(model, folder.model_file, folder.identity)
    return model.to(pick_device(device)).eval()
