"""A finished run → what explains the nodes of its graph by their ids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from node2seq.data.splits import REGRESSION, kind_of_labels, labelled
from node2seq.data.tabular import first_few
from node2seq.errors import Node2SeqError
from node2seq.explain.explainer import Explainer
from node2seq.runs.folder import RunFolder
from node2seq.runs.graph import RunGraph, Say, open_again
from node2seq.runs.inference import load_model


@dataclass(frozen=True)
class ExplainedRun:
    """A run whose nodes can be explained.

    Args:
        folder: The run folder.
        graph: The graph that it was trained on.
        explainer: Explains its nodes by their numbers.
    """

    folder: RunFolder
    graph: RunGraph
    explainer: Explainer

    @property
    def title(self) -> str:
        """The model and the graph."""
        return f"{self.folder.run.model} on {self.folder.run.source.title}"

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each node by its id as it is typed."""
        return {str(name): number for number, name in enumerate(self.graph.node_ids)}

    @cached_property
    def labels(self) -> np.ndarray:
        """The class of each node as the graph has it; −1 where it is unlabelled or has no single class."""
        y = self.explainer.y
        has_one = self.explainer.task.has_classes and y.dim() == 1
        return y.cpu().numpy() if has_one else np.full(len(self.numbers), -1)

    def number(self, name: str) -> int:
        """The number of a node by its id."""
        if name not in self.numbers:
            known = list(self.numbers)
            raise Node2SeqError(
                f"node {name!r}",
                f"the graph of {self.folder.path} has no such node",
                f"Give one of its {len(known)} ids, such as {first_few(known)}",
            )
        return self.numbers[name]

    def label_names(self, node: int) -> list[str] | None:
        """The class, the labels or the number of a node as the graph has it; None where it is unlabelled."""
        y, names = self.explainer.y, self.explainer.class_names
        if not bool(labelled(y[node : node + 1])[0]):
            return None
        if kind_of_labels(y) == REGRESSION:
            return [f"{float(y[node]):.5g}"]
        numbers = y[node].nonzero().view(-1) if y.dim() > 1 else y[node : node + 1]
        return [str(number if names is None else names[number]) for number in numbers.tolist()]

    def label_of(self, node: int) -> int | None:
        """The class of a node as in :attr:`labels`; None for −1."""
        label = int(self.labels[node])
        return label if label >= 0 else None


def open_run(
    path: str | Path, *, device: str = "auto", both_directions: bool = False, say: Say | None = None
) -> ExplainedRun:
    """Open a finished run to explain its nodes.

    Args:
        path: The run folder.
        device: Where to compute.
        both_directions: Whether a neighbour is switched off by both edges; see
            :func:`node2seq.explain.explain`.
        say: Called with a line before each step that may take a while.
    """
    folder = RunFolder(path)
    model = load_model(folder, device)
    graph = open_again(folder, say)
    about: dict[str, Any] = {
        "task": folder.calibrated_task,
        "both_directions": both_directions,
        "names": graph.node_ids,
        "class_names": folder.config["graph"]["class_names"] or None,
    }
    return ExplainedRun(folder, graph, Explainer(model, graph.data, **about))
