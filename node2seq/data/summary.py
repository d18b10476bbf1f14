"""Sizes, homophily, components and training cost of a graph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from node2seq.data.edges import connected_components
from node2seq.data.schema import is_directed
from node2seq.data.splits import CLASSIFICATION, REGRESSION, kind_of_labels, labelled


@dataclass(frozen=True)
class Summary:
    """Sizes, shape and cost of a graph.

    ``edges`` counts an undirected edge once. ``homophily`` is the share of edges between labelled nodes that
    join two of the same class; None where no classes are predicted. ``task`` is what is predicted, and
    ``target`` the mean, standard deviation, least and largest of numbers. ``seconds_per_epoch`` and
    ``training_bytes`` are estimates, see :func:`estimate`. ``columns`` says how each column of the nodes was
    read.
    """

    nodes: int
    edges: int
    directed: bool
    features: int
    classes: int
    labelled: int
    class_counts: dict[str, int]
    homophily: float | None
    components: int
    largest_component: int
    isolated: int
    largest_degree: int
    self_loops_dropped: int
    duplicates_merged: int
    seconds_per_epoch: float
    training_bytes: int
    notes: list[str] = field(default_factory=list)
    task: str = CLASSIFICATION
    target: dict[str, float] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The summary as a JSON-ready dict."""
        return asdict(self)


def summarise(data: Data) -> Summary:
    """Describe a graph from :func:`load`, :func:`read_graph` or any other ``Data`` with ``edge_index``."""
    assert data.edge_index is not None
    held = data.to_dict()
    n = int(data.num_nodes or 0)
    source, target = data.edge_index
    report = held.get("report")
    directed = is_directed(data)
    touched = torch.bincount(source, minlength=n)
    if directed:
        touched = touched + torch.bincount(target, minlength=n)
    one_way = data.edge_index if directed else data.edge_index[:, source < target]
    component = torch.bincount(connected_components(one_way, n), minlength=1)
    features = 0 if data.x is None else data.x.size(1)
    y = data.y if isinstance(data.y, Tensor) else torch.full((n,), -1)
    task = kind_of_labels(y)
    is_class = task == CLASSIFICATION
    counts = {} if task == REGRESSION else _class_counts(y, held.get("class_names"))
    seconds, memory = estimate(n, data.edge_index.size(1), features)
    return Summary(
        nodes=n,
        edges=one_way.size(1),
        directed=directed,
        features=features,
        classes=len(counts),
        labelled=int(labelled(y).sum()),
        class_counts=counts,
        homophily=_homophily(one_way, y) if is_class else None,
        components=int((component > 0).sum()),
        largest_component=int(component.max()),
        isolated=int((touched == 0).sum()),
        largest_degree=int(touched.max()) if n else 0,
        self_loops_dropped=0 if report is None else report.edges.self_loops,
        duplicates_merged=0 if report is None else report.edges.duplicates,
        seconds_per_epoch=seconds,
        training_bytes=memory,
        notes=[] if report is None else list(report.notes),
        task=task,
        target=_numbers(y[labelled(y)]) if task == REGRESSION else {},
        columns={} if report is None else dict(report.columns),
    )


#: What is counted for each node, by the task.
COUNTED = {"classification": "classes", "multi-label": "labels"}


def described_target(target: Mapping[str, float]) -> str:
    """What numbers are predicted, in a few words, from ``Summary.target``."""
    if not target:
        return "numbers, of which none is known"
    mean, sd, least, largest = (rounded(target[name]) for name in ("mean", "sd", "least", "largest"))
    return f"numbers from {least} to {largest}, mean {mean}, standard deviation {sd}"


def rounded(value: float) -> str:
    """A number with four digits that count, as a person would write it."""
    if not 1e-3 <= abs(value) < 1e7:
        return f"{value:.4g}"
    return f"{value:.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"


def _class_counts(y: Tensor, names: list[str] | None) -> dict[str, int]:
    known = y[labelled(y)]
    if not known.numel() and not names:
        return {}
    if known.dim() == 2:
        counts = known.sum(0).tolist()
    else:
        counts = torch.bincount(known, minlength=len(names or ())).tolist()
    return {names[number] if names else str(number): count for number, count in enumerate(counts)}


def _numbers(known: Tensor) -> dict[str, float]:
    if not known.numel():
        return {}
    figures = {
        "mean": known.mean(),
        "sd": known.std(correction=0),
        "least": known.min(),
        "largest": known.max(),
    }
    return {name: float(value) for name, value in figures.items()}


def _homophily(edge_index: Tensor, y: Tensor) -> float | None:
    label = y.int()
    one, other = label[edge_index[0]], label[edge_index[1]]
    known = (one >= 0) & (other >= 0)
    edges = int(known.sum())
    return int(((one == other) & known).sum()) / edges if edges else None


# Fitted to forward, backward and Adam step of the default network (hidden 64, kernel 3, one hop) on six
# graphs of 183 to 20,000 nodes, 280 to 400,000 edges and 64 to 2089 features: one thread's time, and the
# growth of memory.
_SECONDS = {"step": 5e-3, "cell": 5e-8, "node": 1.15e-5, "entry": 6e-7}
_BYTES = {"step": 350 * 2**20, "cell": 24, "node": 8200, "entry": 75}
_TWO_CORES = 1.6


def estimate(nodes: int, entries: int, features: int) -> tuple[float, int]:
    """A rough estimate of seconds per epoch on two CPU cores, and of bytes, to train the default network.

    ``entries`` are the entries of ``edge_index``. It was within a factor of two in every measurement;
    other settings and machines differ more. Use it to tell seconds from hours.
    """
    amount = {"step": 1, "cell": nodes * features, "node": nodes, "entry": nodes + entries}
    seconds = sum(_SECONDS[kind] * count for kind, count in amount.items()) / _TWO_CORES
    return seconds, sum(_BYTES[kind] * count for kind, count in amount.items())
