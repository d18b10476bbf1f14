"""What the page shows of a run: its nodes, one of them with its neighbours, the learned matrices.

Plain dataclasses, so that the server and a page in a file of its own show the same.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch

from node2seq.data.splits import PARTS
from node2seq.errors import Node2SeqError
from node2seq.explain.explanation import Layer, Neighbour
from node2seq.explain.run import ExplainedRun
from node2seq.nn.conv.ranks import learned_matrices
from node2seq.train.task import Classification, Regression

#: How many neighbours of a layer are shown: those with the largest contributions.
SHOWN = 60
#: How many nodes of a list are shown at once.
LISTED = 50
# A matrix of more rows or columns is shown in blocks: the strongest value of each.
_CELLS = 32
_STEPS = 16
# Predictions without a neighbour that are worked out before others get their turn.
_AT_ONCE = 8
# Views that are kept: going back to a node costs nothing.
_KEPT = 128

Filter = Literal["all", "mistakes", "uncertain"]
Part = Literal["all", "train", "val", "test"]


@dataclass(frozen=True)
class NodeLine:
    """A node in a list. Classes are numbers; ``sure`` is the probability of the predicted one.

    ``labels`` are the names of its class or of several labels; None where it is unlabelled.
    """

    name: str
    label: int | None
    labels: list[str] | None
    predicted: int | None
    sure: float
    part: str


@dataclass(frozen=True)
class NodeList:
    """The first of the nodes that a search found, and how many there are."""

    total: int
    nodes: list[NodeLine]


@dataclass(frozen=True)
class RunView:
    """The run as a whole. Confusion matrices have a row for each true class; none without classes."""

    title: str
    task: str
    class_names: list[str]
    nodes: int
    edges: int
    both_directions: bool
    confusion: dict[str, list[list[int]]]


@dataclass(frozen=True)
class NeighbourView:
    """A neighbour as the strip shows it."""

    name: str
    label: int | None
    predicted: int | None
    position: int | None
    kind: str
    hops: int
    score: float
    contribution: float
    size: float
    """The length of what it adds to the layer's output."""
    ranks: list[float] | None
    can_switch: bool


@dataclass(frozen=True)
class LayerView:
    """A layer, or one of its heads, at the node."""

    name: str
    head: int
    readout: str
    kernel_size: int
    order: str
    reads_order: bool
    gain: float
    completeness_error: float
    own: float
    bias: float
    neighbours: list[NeighbourView]
    """In their order, then those rejected: at most :data:`SHOWN`."""
    hidden: int
    """How many more there are."""
    links: list[tuple[int, int]]
    """The edges between those shown, by their places in the list; −1 is the node itself."""


@dataclass(frozen=True)
class NodeView:
    """A node, its prediction and its neighbours."""

    node: NodeLine
    probabilities: list[float]
    before: list[float]
    """The same with all neighbours."""
    layers: list[LayerView]
    without: list[str]
    score: float
    linear: float | None
    """What the linear part of the network adds to the score; None if it has none."""
    nodes_read: int


@dataclass(frozen=True)
class Change:
    """The prediction without one more neighbour."""

    name: str
    probabilities: list[float]
    change: float


@dataclass(frozen=True)
class Changes:
    """The predictions without each of the neighbours that are shown."""

    changes: list[Change]


@dataclass(frozen=True)
class Matrix:
    """A learned matrix, in blocks where it is large: ``values[row][column]``, rows are channels read."""

    title: str
    values: list[list[float]]


@dataclass(frozen=True)
class LayerMatrices:
    """The matrices of a layer: one for each tap, or each rank and the mean."""

    name: str
    channels: int
    matrices: list[Matrix]


@dataclass(frozen=True)
class Learned:
    """The learned matrices of all Node2Seq layers."""

    layers: list[LayerMatrices]


@dataclass
class Viewer:
    """Views of a run. Safe to ask from several threads: one of them explains at a time.

    Args:
        run: The run.
    """

    run: ExplainedRun
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _views: OrderedDict[tuple[Any, ...], Any] = field(default_factory=OrderedDict)

    @cached_property
    def _names(self) -> list[str]:
        return list(self.run.numbers)

    @cached_property
    def _folded(self) -> list[str]:
        return [name.casefold() for name in self._names]

    @cached_property
    def _predicted(self) -> tuple[np.ndarray, np.ndarray]:
        """The predicted class of each node with its probability, or −1 with its number."""
        found = self.run.explainer.predictions.cpu().numpy()
        if isinstance(self.run.explainer.task, Regression):
            return np.full(len(self._names), -1), found.reshape(-1)
        return found.argmax(1), found.max(1)

    @cached_property
    def _parts(self) -> np.ndarray:
        """The part of the split that each node is in, or nothing."""
        parts = np.full(len(self._names), "", dtype="<U5")
        for name in PARTS:
            parts[getattr(self.run.folder.split, name).numpy()] = name
        return parts

    def warm(self) -> None:
        """Predict every node: threads that ask later find it done, and none runs the model beside another."""
        self.about()
        self.line(0)

    def about(self) -> RunView:
        """The run as a whole."""
        explainer = self.run.explainer
        return RunView(
            title=self.run.title,
            task=explainer.task.kind,
            class_names=list(map(str, explainer.class_names or [])),
            nodes=len(self._names),
            edges=explainer.graph.edge_index.size(1),
            both_directions=explainer.both_directions,
            confusion=self._confusion,
        )

    @cached_property
    def _confusion(self) -> dict[str, list[list[int]]]:
        classes = len(self.run.explainer.class_names or [])
        if not isinstance(self.run.explainer.task, Classification) or not classes:
            return {}
        found = {}
        for part in ("all", *PARTS):
            chosen = (self.run.labels >= 0) & ((self._parts == part) | (part == "all"))
            pairs = self.run.labels[chosen] * classes + self._predicted[0][chosen]
            found[part] = np.bincount(pairs, minlength=classes**2).reshape(classes, classes).tolist()
        return found

    def line(self, node: int) -> NodeLine:
        """A node as lists show it."""
        predicted, sure = self._predicted
        return NodeLine(
            name=self._names[node],
            label=self.run.label_of(node),
            labels=self.run.label_names(node),
            predicted=int(predicted[node]) if predicted[node] >= 0 else None,
            sure=float(sure[node]),
            part=str(self._parts[node]),
        )

    def nodes(
        self,
        query: str = "",
        *,
        which: Filter = "all",
        part: Part = "all",
        label: int | None = None,
        predicted: int | None = None,
        offset: int = 0,
    ) -> NodeList:
        """Nodes whose name holds some text, those that start with it first.

        Args:
            query: The text.
            which: All, those predicted wrong, the surest first, or all with the least sure first.
            part: The part of the split.
            label: Their class.
            predicted: The class that is predicted.
            offset: How many to leave out.
        """
        classes, sure = self._predicted
        chosen = np.ones(len(self._names), dtype=bool)
        if which == "mistakes":
            chosen &= (self.run.labels >= 0) & (classes != self.run.labels)
        if part != "all":
            chosen &= self._parts == part
        if label is not None:
            chosen &= self.run.labels == label
        if predicted is not None:
            chosen &= classes == predicted
        found = np.flatnonzero(chosen)
        if which != "all":
            found = found[np.argsort(sure[found] if which == "uncertain" else -sure[found], kind="stable")]
        if query:
            found = self._matching(found, query.casefold())
        shown = found[offset : offset + LISTED].tolist()
        return NodeList(len(found), [self.line(node) for node in shown])

    def _matching(self, nodes: np.ndarray, text: str) -> np.ndarray:
        """Those whose name holds the text: first that of this very name, then those that start with it."""
        names = self._folded
        found = [node for node in nodes.tolist() if text in names[node]]
        found.sort(key=lambda node: (not names[node].startswith(text), names[node] != text))
        return np.array(found, dtype=np.int64)

    def node(self, name: str, without: Sequence[str] = ()) -> NodeView:
        """A node with its neighbours, some of them switched off."""
        return self._cached(("node", name, *sorted(without)), lambda: self._node(name, sorted(without)))

    def changes(self, name: str, without: Sequence[str] = ()) -> Changes:
        """The prediction without each of the neighbours that :meth:`node` shows.

        A few of them at a time, so that requests for other nodes are answered in between.
        """
        key, off = ("changes", name, *sorted(without)), [self.run.number(other) for other in without]
        if key in self._views:
            return self._views[key]
        node, layers = self.run.number(name), self.node(name, without).layers
        shown = {each.name for layer in layers for each in layer.neighbours if each.can_switch}
        others = sorted(map(self.run.number, shown))
        found: list[Change] = []
        for start in range(0, len(others), _AT_ONCE):
            with self._lock:
                some = others[start : start + _AT_ONCE]
                for each in self.run.explainer.without_each(node, some, without=off):
                    found.append(Change(str(each.name), list(each.probabilities), each.change))
        return self._cached(key, lambda: Changes(found))

    def _cached(self, key: tuple[Any, ...], make: Any) -> Any:
        with self._lock:
            if key not in self._views:
                self._views[key] = make()
                if len(self._views) > _KEPT:
                    self._views.popitem(last=False)
            self._views.move_to_end(key)
            return self._views[key]

    def _node(self, name: str, without: Sequence[str]) -> NodeView:
        explainer, node = self.run.explainer, self.run.number(name)
        found = explainer.explain(
            node, without=[self.run.number(other) for other in without], counterfactuals=False, steps=_STEPS
        )
        before = explainer.predictions[node].reshape(-1).tolist()
        return NodeView(
            node=self.line(node),
            probabilities=list(found.probabilities),
            before=before,
            layers=[self._layer(layer, node) for layer in found.layers],
            without=list(without),
            score=found.score,
            linear=found.linear,
            nodes_read=found.nodes_read,
        )

    def _layer(self, layer: Layer, node: int) -> LayerView:
        shown = layer.largest(SHOWN)
        return LayerView(
            name=layer.name,
            head=layer.head,
            readout=layer.readout,
            kernel_size=layer.kernel_size,
            order=layer.order,
            reads_order=layer.reads_order,
            gain=layer.gain,
            completeness_error=layer.completeness_error,
            own=layer.own.contribution,
            bias=layer.bias.contribution,
            neighbours=[self._neighbour(each) for each in shown],
            hidden=len(layer.sequence) + len(layer.rejected) - len(shown),
            links=self._links(node, [each.node for each in shown]),
        )

    def _neighbour(self, neighbour: Neighbour) -> NeighbourView:
        line = self.line(neighbour.node)
        return NeighbourView(
            name=line.name,
            label=line.label,
            predicted=line.predicted,
            position=neighbour.position,
            kind=neighbour.kind,
            hops=neighbour.hops,
            score=neighbour.score,
            contribution=neighbour.contribution,
            size=float(np.linalg.norm(neighbour.terms)),
            ranks=None if neighbour.ranks is None else list(neighbour.ranks),
            can_switch=bool(neighbour.edges),
        )

    def _links(self, node: int, shown: Iterable[int]) -> list[tuple[int, int]]:
        """The edges between nodes, each pair once."""
        place = {other: number for number, other in enumerate(shown) if other != node} | {node: -1}
        graph = self.run.explainer.graph
        nodes = torch.tensor(sorted(place), device=graph.edge_index.device)
        edges, sources = graph.read(nodes, "source_to_target")
        pairs = graph.edge_index[:, edges[torch.isin(sources, nodes)]].T.tolist()
        found = {tuple(sorted((place[a], place[b]))) for a, b in pairs if a != b}
        return sorted((a, b) for a, b in found)

    def learned(self) -> Learned:
        """The learned matrices."""
        return Learned(
            [
                LayerMatrices(
                    name, conv.out_channels, [Matrix(*each) for each in learned_matrices(conv, _CELLS)]
                )
                for name, conv in self.run.explainer.layers.items()
            ]
        )


def check_classes(classes: int, *given: int | None) -> None:
    """Refuse numbers of classes that there are not."""
    for number in given:
        if number is not None and number >= classes:
            raise Node2SeqError(f"class {number}", f"there are {classes} classes", "Give a smaller number")


def full_view(viewer: Viewer, name: str, without: Sequence[str] = ()) -> dict[str, Any]:
    """Everything that the page of one node shows, as a JSON-ready dict."""
    return {
        "run": asdict(viewer.about()),
        "node": asdict(viewer.node(name, without)),
        "changes": asdict(viewer.changes(name, without)),
        "learned": asdict(viewer.learned()),
    }
