"""An explanation as data: what was read and what it added; as JSON, as a frame, for the metrics of PyG."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explanation as PyGExplanation

from node2seq.data.graph import carried_by
from node2seq.data.tabular import pl


@dataclass(frozen=True)
class Neighbour:
    """A node in a sequence, or one that was rejected from it."""

    node: int
    """Its number in the graph."""
    name: Any
    """Its id in the user's files, or its number."""
    position: int | None
    """Its place in the sequence from 0; None for a rejected neighbour."""
    kind: str
    """``self``, ``local`` or ``non-local``."""
    hops: int
    """How many edges away it is: 0 for the node itself."""
    score: float
    """What it is ranked by; with a fixed or given order, what attention would have ranked it by."""
    edges: tuple[int, ...]
    """Its edges as the graph lists them; none for the node itself and for non-local nodes."""
    ranks: tuple[float, ...] | None
    """For ``readout="ranks"``: its share at each of the first ranks."""
    terms: tuple[float, ...]
    """What it adds to each channel of the layer's output; exact."""
    contribution: float
    """What that adds to the score of the explained class, by integrated gradients."""


@dataclass(frozen=True)
class Term:
    """A term of the output that is no neighbour: the node's own features, or the bias."""

    terms: tuple[float, ...]
    contribution: float


@dataclass(frozen=True)
class Layer:
    """What a Node2Seq layer, or one of its heads, did at the node."""

    name: str
    """The layer's name in the model."""
    head: int
    readout: str
    kernel_size: int
    order: str
    reads_order: bool
    """Whether the order plays a part."""
    sequence: tuple[Neighbour, ...]
    """The neighbours, best first; a non-local node may have the place of a local one."""
    rejected: tuple[Neighbour, ...]
    """The neighbours that made room for non-local nodes, best first."""
    own: Term
    """The node's own features, apart from its entry in the sequence."""
    bias: Term
    output: tuple[float, ...]
    """The layer's output at the node: the sum of all terms."""
    gain: float
    """How much higher the score of the class is than with zeros in place of this output."""
    completeness_error: float
    """By how much the contributions of all heads together miss the gain: the error of the integral."""
    steps: int
    """At how many points the gradient was taken."""

    def largest(self, most: int) -> list[Neighbour]:
        """The neighbours with the largest contributions, in their order, those rejected last."""
        listed = [*self.sequence, *self.rejected]
        kept = sorted(range(len(listed)), key=lambda each: -abs(listed[each].contribution))[:most]
        return [listed[place] for place in sorted(kept)]


@dataclass(frozen=True)
class Counterfactual:
    """The prediction without a neighbour."""

    node: int
    name: Any
    edges: tuple[int, ...]
    """The edges that were removed."""
    probabilities: tuple[float, ...]
    """Of each class; or the predicted number alone."""
    predicted: int | None
    """The class that is predicted then; None for a number."""
    change: float
    """By how much the probability of the explained class, or the number, changes."""


@dataclass(frozen=True)
class Explanation:
    """Why a model predicts what it predicts for a node; see :func:`node2seq.explain.explain`."""

    node: int
    name: Any
    class_names: tuple[str, ...]
    probabilities: tuple[float, ...]
    """Of each class; or the predicted number alone."""
    predicted: int | None
    """The class that is explained, the most probable one; None for a number."""
    label: float | list[int] | int | None
    """The node's class, number or labels as the graph has them; None where it is unlabelled."""
    score: float
    """What contributions add up in: the logit of the class less the mean of all logits, or the number."""
    layers: tuple[Layer, ...]
    counterfactuals: tuple[Counterfactual, ...]
    without: tuple[int, ...] = ()
    """The neighbours that were switched off."""
    both_directions: bool = False
    """Whether without a neighbour j both j → i and i → j are missing, or j → i alone."""
    linear: float | None = None
    """What the linear part of the network adds to the score; None if it has none."""
    nodes_read: int = 0
    """How many nodes the passes went over: those that the prediction depends on, or all."""

    def neighbours(self) -> Iterator[tuple[Layer, Neighbour]]:
        """Every neighbour of every layer, those in the sequence first."""
        for layer in self.layers:
            for neighbour in (*layer.sequence, *layer.rejected):
                yield layer, neighbour

    def to_dict(self) -> dict[str, Any]:
        """The explanation as a JSON-ready dict."""
        return asdict(self)

    def to_frame(self) -> pl.DataFrame:
        """A row for each neighbour in each layer, as a polars frame; terms are a list each."""
        found = {cf.node: cf for cf in self.counterfactuals}
        rows = []
        for layer, neighbour in self.neighbours():
            row = {"layer": layer.name, "head": layer.head, **asdict(neighbour)}
            row |= {"name": str(neighbour.name), "edges": list(neighbour.edges)}
            # The node's own entry is no edge, and none of a non-local node can be removed.
            without = found.get(neighbour.node) if neighbour.edges else None
            row["change_without"] = None if without is None else without.change
            rows.append(row)
        return pl.DataFrame(rows, infer_schema_length=None)

    def edge_scores(self, num_edges: int) -> Tensor:
        """How much each edge into the node contributes: the size of its neighbour's contribution, [E].

        Contributions of layers and heads are added, then their size is taken. Parallel edges that share an
        entry have the same score. Edges elsewhere have zero.
        """
        total = torch.zeros(num_edges, dtype=torch.float64)
        for _, neighbour in self.neighbours():
            total[list(neighbour.edges)] += neighbour.contribution
        return total.abs()

    def to_pyg(self, data: Data, prediction: Tensor | None = None) -> PyGExplanation:
        """The explanation as PyG has it: an ``edge_mask`` from 0 to 1, so that PyG's metrics run on it.

        Args:
            data: The graph that was explained.
            prediction: The model's outputs of all nodes, for metrics that compare with them.
        """
        assert data.edge_index is not None
        carried = carried_by(data)
        scores = self.edge_scores(data.edge_index.size(1)).float()
        found = PyGExplanation(
            x=data.x,
            edge_index=data.edge_index,
            edge_mask=scores / scores.max().clamp(min=torch.finfo(scores.dtype).tiny),
            index=torch.tensor([self.node]),
            **carried,
        )
        found._model_args = list(carried)
        if prediction is not None:
            found.prediction, found.target = prediction, prediction.argmax(dim=-1)
        found.validate_masks()
        return found
