"""What a graph's edges tell: lists without duplicates, features, components, sizes, homophily and cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from node2seq.data.splits import CLASSIFICATION, REGRESSION, kind_of_labels, labelled
from node2seq.environment import LazyModule

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch_geometric.data import Data
else:
    torch = LazyModule("torch")

# Degrees 0, 1, 2, 3–4, 5–8, …, above 2¹⁵: fixed, so that a model fits a graph of any size.
_BINS = 18

#: What the columns are, for messages.
STRUCTURAL = (
    f"{_BINS + 4} structural features (a constant; the logarithms of the degree and of the neighbours' mean "
    "and largest degree; the degree's class, one-hot)"
)


@dataclass(frozen=True)
class EdgeCounts:
    """How many edges were given, and how many of them were self loops and duplicates."""

    given: int
    self_loops: int
    duplicates: int


@dataclass(frozen=True)
class ReadReport:
    """What reading changed: the edges dropped or merged, and notes and warnings for the user.

    ``columns`` says how each column of the nodes was read.
    """

    edges: EdgeCounts
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    columns: dict[str, str] = field(default_factory=dict)


def report_of(data: Data) -> ReadReport:
    """The report of a graph that was read from files; one that says nothing of any other."""
    return data.to_dict().get("report") or ReadReport(EdgeCounts(0, 0, 0))


def clean_edges(edge_index: Tensor, num_nodes: int, *, directed: bool = False) -> tuple[Tensor, EdgeCounts]:
    """Remove self loops and duplicates; add the reverse of every edge unless ``directed``.

    Returns the edges [2, E] sorted by source, then target, as in every graph of this package, and the counts.
    In an undirected graph, the two directions of an edge count as duplicates.
    """
    source, target = edge_index.numpy()
    # Reuse large arrays: allocating memory costs more than the arithmetic that fills it.
    keys = source.copy() if directed else np.minimum(source, target)
    keys *= num_nodes
    keys += target if directed else np.maximum(source, target)
    self_loops = int(np.count_nonzero(source == target))
    if self_loops:
        keys = keys[source != target]
    # Sort and compare neighbours: np.unique would hash the keys, 50 times slower on 10 M edges.
    keys.sort()
    first = np.append(True, keys[1:] != keys[:-1]) if keys.size else np.empty(0, dtype=bool)
    distinct = keys if first.all() else keys[first]
    counts = EdgeCounts(edge_index.size(1), self_loops, keys.size - distinct.size)
    if directed:
        return _apart(distinct, num_nodes), counts
    both = np.empty(2 * distinct.size, dtype=np.int64)
    both[: distinct.size], other_way = distinct, both[distinct.size :]
    np.floor_divide(distinct, max(num_nodes, 1), out=other_way)
    distinct %= max(num_nodes, 1)
    distinct *= num_nodes
    other_way += distinct
    both.sort()
    return _apart(both, num_nodes), counts


def clean_valued_edges(
    edge_index: Tensor, carried: Mapping[str, Tensor], num_nodes: int, *, directed: bool = False
) -> tuple[Tensor, dict[str, Tensor], EdgeCounts]:
    """The same for edges that carry something; parallel ones then stay what they are.

    In an undirected graph an edge carries the same in both directions. Listed in both directions with the
    same values, it is one edge.

    Args:
        edge_index: The edges, [2, E].
        carried: What they carry by name, each [E] or [E, V].
        num_nodes: How many nodes there are.
        directed: Whether to leave out the reverse of every edge.

    Returns:
        The edges, sorted by source, then target, parallel ones as they are listed; what they carry; the
        counts.
    """
    if not carried:
        edges, counts = clean_edges(edge_index, num_nodes, directed=directed)
        return edges, {}, counts
    source, target = edge_index.numpy()
    row = np.flatnonzero(source != target)
    self_loops = source.size - row.size
    if not directed:
        columns = [column for values in carried.values() for column in np.atleast_2d(values.numpy().T)]
        row = _listed_once(source, target, columns, row, num_nodes)
    counts = EdgeCounts(source.size, self_loops, source.size - self_loops - row.size)
    source, target = source[row], target[row]
    if not directed:
        source, target = np.append(source, target), np.append(target, source)
        row = np.append(row, row)
    order = np.lexsort((row, target, source))
    edges = torch.from_numpy(np.stack([source[order], target[order]]))
    kept = torch.from_numpy(row[order])
    return edges, {name: values[kept] for name, values in carried.items()}, counts


def _listed_once(
    source: np.ndarray, target: np.ndarray, columns: list[np.ndarray], row: np.ndarray, num_nodes: int
) -> np.ndarray:
    """The rows of an undirected graph without those that repeat another in the opposite direction."""
    pair = np.minimum(source, target)[row] * num_nodes + np.maximum(source, target)[row]
    alike = np.zeros(row.size, dtype=np.int64)  # a number for each pair and its values
    for column in (pair, *(values[row] for values in columns)):
        _, number = np.unique(column, return_inverse=True)
        _, alike = np.unique(alike * (row.size + 1) + number.reshape(-1), return_inverse=True)
        alike = alike.reshape(-1)
    # The first row of an edge in one direction and the first in the other are one edge, and so on.
    one_way = 2 * alike + (source > target)[row]
    order = np.argsort(one_way, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(one_way[order]) != 0)) if row.size else order
    lengths = np.diff(np.append(starts, row.size))
    occurrence = np.empty(row.size, dtype=np.int64)
    occurrence[order] = np.arange(row.size) - np.repeat(starts, lengths)
    _, first = np.unique(alike * (row.size + 1) + occurrence, return_index=True)
    return row[np.sort(first)]


def _apart(keys: np.ndarray, num_nodes: int) -> Tensor:
    edges = np.empty((2, keys.size), dtype=np.int64)
    np.floor_divide(keys, max(num_nodes, 1), out=edges[0])
    np.multiply(edges[0], -num_nodes, out=edges[1])
    edges[1] += keys
    return torch.from_numpy(edges)


def connected_components(edge_index: Tensor, num_nodes: int) -> Tensor:
    """The component of each node [N], as the smallest node number in it. Edges count in both directions.

    A quarter of the edges already joins most of each component. Few of the other edges still join two
    components, and finding those is cheap.
    """
    label = torch.arange(num_nodes)
    for edges in (edge_index[:, ::4], edge_index):
        label = _join(label, edges[0], edges[1])
    return label


def _join(label: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Give both ends of every edge the same label: the smaller one, hooked onto the root of the larger.

    Hooking the roots, not the nodes, and jumping to the label's label make the number of rounds logarithmic.
    """
    while True:
        ends = label[source], label[target]
        open_edges = (ends[0] != ends[1]).nonzero().view(-1)
        if not open_edges.numel():
            return label
        source, target = source[open_edges], target[open_edges]
        one, other = ends[0][open_edges], ends[1][open_edges]
        label = label.scatter_reduce(0, torch.maximum(one, other), torch.minimum(one, other), "amin")
        while not torch.equal(jumped := label[label], label):
            label = jumped


def tensors_of(data: Data) -> tuple[Tensor, Tensor]:
    """The features and the edges of a graph that has both, as every prepared one does."""
    assert data.x is not None
    assert data.edge_index is not None
    return data.x, data.edge_index


def carried_by(data: Data) -> dict[str, Tensor]:
    """What the edges of a graph carry: ``edge_weight``, ``edge_attr`` and ``edge_order``, if they do."""
    known = {name: data.get(name) for name in ("edge_weight", "edge_attr", "edge_order")}
    return {name: values for name, values in known.items() if values is not None}


def bare(data: Data) -> Data:
    """A graph of what models read alone: features, edges with what they carry, and labels."""
    from torch_geometric.data import Data

    return Data(x=data.x, edge_index=data.edge_index, y=data.y, **carried_by(data))


def is_directed(data: Data) -> bool:
    """Whether the graph is directed: by its schema if it has one, otherwise by its edges.

    An undirected graph is directed once edges from the future were dropped: they may be so for one end alone.
    """
    schema = data.to_dict().get("schema")
    if schema is None:
        return data.is_directed()
    return bool(schema["directed"] or schema.get("split_by", {}).get("no_future_edges"))


def structural_features(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Features [N, 22] that depend only on the edges, not on the order of the nodes.

    Sums are of whole numbers in float64 and therefore exact, whatever the order of the edges.
    """
    source, target = edge_index
    degree = torch.bincount(target, minlength=num_nodes).double()
    near = torch.zeros(num_nodes, dtype=torch.float64).index_add_(0, target, degree[source])
    largest = torch.zeros(num_nodes, dtype=torch.float64).scatter_reduce_(0, target, degree[source], "amax")
    level = torch.ceil(torch.log2(degree.clamp(min=1))).long() + (degree > 0).long()
    onehot = torch.nn.functional.one_hot(level.clamp(max=_BINS - 1), _BINS)
    columns = [torch.ones_like(degree), degree.log1p(), (near / degree.clamp(min=1)).log1p(), largest.log1p()]
    return torch.cat([torch.stack(columns, dim=1), onehot.double()], dim=1).float()


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
    components: int | None
    largest_component: int | None
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
    report = report_of(data)
    directed = is_directed(data)
    touched = torch.bincount(source, minlength=n)
    if directed:
        touched = touched + torch.bincount(target, minlength=n)
    one_way = data.edge_index if directed else data.edge_index[:, source < target]
    component = torch.bincount(connected_components(one_way, n), minlength=1)
    features = 0 if data.x is None else data.x.size(1)
    y = data.y if isinstance(data.y, torch.Tensor) else torch.full((n,), -1)
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
        self_loops_dropped=report.edges.self_loops,
        duplicates_merged=report.edges.duplicates,
        seconds_per_epoch=seconds,
        training_bytes=memory,
        notes=list(report.notes),
        task=task,
        target=_numbers(y[labelled(y)]) if task == REGRESSION else {},
        columns=dict(report.columns),
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
    counts = known.sum(0) if known.dim() == 2 else torch.bincount(known, minlength=len(names or ()))
    return {names[number] if names else str(number): count for number, count in enumerate(counts.tolist())}


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


def labelled_ends(edge_index: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The classes at both ends of the edges that join labelled nodes."""
    label = y.int()
    one, other = label[edge_index[0]], label[edge_index[1]]
    known = (one >= 0) & (other >= 0)
    return one[known], other[known]


def _homophily(edge_index: Tensor, y: Tensor) -> float | None:
    one, other = labelled_ends(edge_index, y)
    return int((one == other).sum()) / one.numel() if one.numel() else None


def adjusted_homophily(one: Tensor, other: Tensor) -> float:
    """How much more often edges join nodes of one class than chance would: 1 always, 0 as chance does.

    Args:
        one: The class at the start of each edge.
        other: The class at its end.
    """
    same = float((one == other).double().mean())
    classes = int(torch.maximum(one.max(), other.max())) + 1
    shares = [torch.bincount(ends, minlength=classes).double() / ends.numel() for ends in (one, other)]
    by_chance = float((shares[0] * shares[1]).sum())
    return 1.0 if by_chance == 1.0 else (same - by_chance) / (1.0 - by_chance)


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
