"""Explains predictions of a model on a graph, one node after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from node2seq.data.splits import labelled
from node2seq.errors import Node2SeqError
from node2seq.explain.contributions import Contributions, contributions, giving, scores_of, without_linear
from node2seq.explain.ego import BOTH_WAYS, FORWARDS, Ego, Graph, local_edges, receptive_field
from node2seq.explain.explanation import Counterfactual, Explanation, Layer, Neighbour, Term
from node2seq.nn.conv.node2seq import Node2SeqConv
from node2seq.nn.conv.ranks import Call, recorded
from node2seq.nn.models.network import Edges
from node2seq.nn.models.residual import ResidualNetwork
from node2seq.train.inputs import check_features, edge_values, graph_tensors
from node2seq.train.task import MultiLabel, Regression, Task, task_for
from node2seq.train.trainer import evaluating, infer

STEPS = 32
# Passes over parts of a graph are batched up to this number of nodes.
_NODES_AT_ONCE = 20_000


def explain(
    model: nn.Module,
    data: Data,
    node: int,
    *,
    task: Task | None = None,
    without: Iterable[int] = (),
    both_directions: bool = False,
    counterfactuals: bool = True,
    steps: int = STEPS,
) -> Explanation:
    """Explain what a model with Node2Seq layers predicts for a node.

    For each layer it gives the node's ordered sequence, what each neighbour adds to the layer's output, and
    what that adds to the score of the predicted class. Given the order, the winning windows and the shares of
    soft ranks, the layer is linear: the terms sum to its output. From there to the class, contributions are
    integrated gradients along the straight line from zero to the layer's output at this node, all else as it
    is; the layer says by how much they miss their sum.

    Args:
        model: A network of this package or any other with :class:`~node2seq.Node2SeqConv` layers.
        data: The graph.
        node: The node, by its number.
        task: What is predicted, such as ``FitResult.task``; told by the labels if not given.
        without: Neighbours to switch off first.
        both_directions: Whether to switch a neighbour j off by both edges, j → i and i → j, as in a graph
            without directions; by default j → i alone.
        counterfactuals: Whether to predict without each of the neighbours.
        steps: At how many points gradients are taken.
    """
    found = Explainer(model, data, task=task, both_directions=both_directions)
    return found.explain(node, without=without, counterfactuals=counterfactuals, steps=steps)


class Explainer:
    """Explains nodes of one graph; see :func:`explain`.

    Args:
        model: The model.
        data: The graph.
        task: What is predicted; told by the labels if not given.
        both_directions: Whether a neighbour is switched off by both edges.
        names: The nodes' ids in the user's files; their numbers if not given.
        class_names: The classes' names; their numbers if not given.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        *,
        task: Task | None = None,
        both_directions: bool = False,
        names: Sequence[Any] | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        layers = {name: conv for name, conv in model.named_modules() if isinstance(conv, Node2SeqConv)}
        if not layers:
            raise Node2SeqError(
                f"the model {type(model).__name__}",
                "it has no Node2Seq layer, whose order could be explained",
                "Explain a model such as node2seq, node2seq-plus or residual-node2seq",
            )
        self.model, self.data, self.layers = model, data, layers
        self.x, edge_index, self.y = graph_tensors(model, data, needs_labels=False)
        check_features(self.x)
        self.values = edge_values(model, data)
        self.graph = Graph(edge_index, self.x.size(0))
        self.receptive_field = receptive_field(model)
        with without_linear(model):
            self._field_of_layers = receptive_field(model)
        self.task = task_for(self.y) if task is None else task
        self.both_directions = both_directions
        self.names = names
        self.class_names = class_names

    @cached_property
    def outputs(self) -> Tensor:
        """What the model gives for every node of the graph, [N, outputs]; found once."""
        call = partial(self.model, **self.values)
        return infer(self.model, call, self.x, self.graph.edge_index)

    @cached_property
    def predictions(self) -> Tensor:
        """What is predicted of every node: a row of probabilities each, or a number; found once."""
        return self.task.predict(self.outputs)

    def name(self, node: int) -> Any:
        """The id of a node in the user's files, or its number."""
        return node if self.names is None else self.names[node]

    def neighbours_of(self, node: int) -> list[int]:
        """The neighbours that can be switched off: those with an edge that the model reads at the node."""
        at = self._at(node)
        ends = torch.cat([self.graph.read(at, flow)[1] for flow in self.receptive_field.flows])
        return [end for end in ends.unique().tolist() if end != node]

    def explain(
        self,
        node: int,
        *,
        without: Iterable[int] = (),
        counterfactuals: bool = True,
        steps: int = STEPS,
    ) -> Explanation:
        """Explain a node; arguments as in :func:`explain`."""
        self._check(node, steps)
        switched_off = tuple(dict.fromkeys(without))
        gone = self._edges_of(node, switched_off)
        with evaluating(self.model):
            ego, outputs, calls = self._read(node, gone)
            predicted = self._predicted_class(outputs)
            score = float(self._score(outputs[None], predicted)[0])
            linear = self._linear(ego, predicted)
            of_layers = score - (linear or 0.0)
            layers = tuple(
                layer
                for name in calls
                for layer in self._explain_layer(
                    name,
                    calls[name],
                    ego,
                    self._integrate(name, calls, ego, gone, predicted, of_layers, steps),
                    steps,
                )
            )
            others = [j for j in self.neighbours_of(node) if j not in switched_off] if counterfactuals else []
            found = tuple(self._counterfactuals(ego, node, others, outputs, predicted))
        return Explanation(
            node=node,
            name=self.name(node),
            class_names=self._class_names(outputs.size(-1)),
            probabilities=self._shown(outputs),
            predicted=predicted,
            label=self.y[node].tolist() if bool(labelled(self.y[node : node + 1])[0]) else None,
            score=score,
            layers=layers,
            counterfactuals=found,
            without=switched_off,
            both_directions=self.both_directions,
            linear=linear,
            nodes_read=ego.nodes.numel(),
        )

    def without_each(
        self, node: int, others: Sequence[int], *, without: Iterable[int] = ()
    ) -> list[Counterfactual]:
        """The prediction for a node without each of some neighbours, those in ``without`` missing too."""
        self._check(node, 1)
        gone = self._edges_of(node, tuple(dict.fromkeys(without)))
        with evaluating(self.model):
            ego, outputs, _ = self._read(node, gone)
            return list(self._counterfactuals(ego, node, others, outputs, self._predicted_class(outputs)))

    def _check(self, node: int, steps: int) -> None:
        nodes = self.x.size(0)
        if isinstance(node, bool) or not isinstance(node, int) or not 0 <= node < nodes:
            raise Node2SeqError(
                f"node {node!r}", f"the graph has the nodes 0 to {nodes - 1}", "Give one of them"
            )
        if steps < 1:
            raise Node2SeqError(f"steps={steps}", "a gradient is taken at each", "Give 1 or more")

    def _at(self, node: int) -> Tensor:
        return torch.tensor([node], device=self.x.device)

    def _edges_of(self, node: int, others: Sequence[int]) -> Tensor:
        """The edges by which some neighbours reach a node."""
        between = [self._edges_between(node, other) for other in others]
        return torch.cat([self.graph.edge_index.new_zeros(0), *between])

    def _edges_between(self, node: int, other: int) -> Tensor:
        """The edges by which a neighbour reaches a node, as the graph lists them."""
        flows = BOTH_WAYS if self.both_directions else self.receptive_field.flows
        read = [self.graph.read(self._at(node), flow) for flow in flows]
        edges = torch.cat([edges[ends == other] for edges, ends in read]).unique()
        if other == node or not edges.numel():
            raise Node2SeqError(
                f"node {self.name(other)!r} as a neighbour of {self.name(node)!r}",
                "no edge of this node leads from it",
                "Switch off a neighbour with an edge to the node",
            )
        return edges

    @torch.no_grad()
    def _read(self, node: int, removed: Tensor) -> tuple[Ego, Tensor, dict[str, Call]]:
        """The part of the graph that decides the node, its output, and what the layers did there."""
        ego = self.graph.around(node, self.receptive_field)
        found = self._record(_without(ego, removed))
        is_known = ego.is_whole or self._agrees(ego, node, None if removed.numel() else found[1])
        return found if is_known else self._record(_without(self.graph.whole(node), removed))

    def _record(self, ego: Ego) -> tuple[Ego, Tensor, dict[str, Call]]:
        with recorded(self.model) as calls:
            outputs = self._outputs([ego])[0]
        return ego, outputs, calls

    def _agrees(self, ego: Ego, node: int, found: Tensor | None) -> bool:
        """Whether the part gives the node what the whole graph does: a model may read more than we know.

        Args:
            ego: The part.
            node: The node in its middle.
            found: What it gives, if that is known.
        """
        found, known = self._outputs([ego])[0] if found is None else found, self.outputs[node]
        tolerance = torch.finfo(known.dtype).eps ** 0.5
        return bool((found - known).abs().max() <= tolerance * (1 + known.abs().max()))

    def _batches(self, egos: Sequence[Ego]) -> Iterator[Sequence[Ego]]:
        # Where the whole graph matters, what is beside it may matter too, and so may the nodes' own numbers.
        size = 1 if egos[0].is_whole else max(1, _NODES_AT_ONCE // egos[0].nodes.numel())
        for start in range(0, len(egos), size):
            yield egos[start : start + size]

    def _outputs(self, egos: Sequence[Ego]) -> Tensor:
        """The model's outputs at the centres of parts that have the same nodes, [parts, outputs]."""
        nodes, count = egos[0].nodes, len(egos)
        width = nodes.numel()
        x = self.x[nodes].repeat(count, 1) if count > 1 or not egos[0].is_whole else self.x
        if count == 1:
            edge_index = egos[0].edge_index
        else:
            edge_index = torch.cat([ego.edge_index + k * width for k, ego in enumerate(egos)], dim=1)
        edges = torch.cat([ego.edges for ego in egos])
        values = {name: value[edges] for name, value in self.values.items()}
        centres = torch.arange(count, device=x.device) * width + egos[0].centre
        return self.model(x, edge_index, **values)[centres]

    def _predicted_class(self, outputs: Tensor) -> int | None:
        return None if isinstance(self.task, Regression) else int(outputs.argmax())

    def _score(self, outputs: Tensor, predicted: int | None) -> Tensor:
        """What contributions add up in, for some outputs, [n]."""
        if predicted is None:
            return self.task.predict(outputs).view(-1)
        if isinstance(self.task, MultiLabel):
            return outputs[:, predicted]
        return outputs[:, predicted] - outputs.mean(-1)  # adding to all logits changes no prediction

    @torch.no_grad()
    def _linear(self, ego: Ego, predicted: int | None) -> float | None:
        """What the linear part of a network adds to the score at the centre of a part of the graph."""
        if not isinstance(self.model, ResidualNetwork) or not self.model.hops_beside:
            return None
        assert self.model.linear is not None
        weight = self.values.get("edge_weight")
        edges = Edges(ego.edge_index, None if weight is None else weight[ego.edges])
        outputs = self.model.linear(self.x[ego.nodes], edges)[ego.centre]
        return float(self._score(outputs[None], predicted)[0])

    def _shown(self, outputs: Tensor) -> tuple[float, ...]:
        return tuple(self.task.predict(outputs[None]).view(-1).tolist())

    def _class_names(self, outputs: int) -> tuple[str, ...]:
        if isinstance(self.task, Regression):
            return ()
        given = map(str, range(outputs)) if self.class_names is None else self.class_names
        return tuple(map(str, given))

    def _explain_layer(
        self, name: str, call: Call, ego: Ego, integrated: tuple[Tensor, float], steps: int
    ) -> Iterator[Layer]:
        """What the layer did at the node: an element for each head."""
        conv = self.layers[name]
        centre = torch.tensor([ego.centre], device=self.x.device)
        found = contributions(conv, call, centre)
        gradient, gain = integrated
        missed = abs(float(call.out[ego.centre].double() @ gradient) - gain)
        channels = conv.out_channels
        graph = Graph(call.edge_index, ego.nodes.numel())
        local = local_edges(conv, graph, ego.centre, call.trace.edge is not None)
        away = graph.distances(ego.centre, conv.hops, conv.flow)
        for head in range(conv.heads):
            mine = slice(head * channels, (head + 1) * channels)
            sequence, rejected = self._sequence(
                conv, call, ego, found, head, gradient[mine], local=local, away=away
            )
            own, bias = (
                Term(tuple(terms.tolist()), float(terms @ gradient[mine]))
                for terms in (found.own[0, mine], found.bias[mine])
            )
            yield Layer(
                name=name,
                head=head,
                readout=conv.readout,
                kernel_size=conv.kernel_size,
                order=conv.order,
                reads_order=conv.reads_order,
                sequence=sequence,
                rejected=rejected,
                own=own,
                bias=bias,
                output=tuple(call.out[ego.centre, mine].tolist()),
                gain=gain,
                completeness_error=missed,
                steps=steps,
            )

    def _sequence(
        self,
        conv: Node2SeqConv,
        call: Call,
        ego: Ego,
        found: Contributions,
        head: int,
        gradient: Tensor,
        *,
        local: dict[tuple[int, int], list[int]],
        away: dict[int, int],
    ) -> tuple[tuple[Neighbour, ...], tuple[Neighbour, ...]]:
        """The neighbours of one head in their order, and those rejected."""
        trace, size = call.trace, call.x.size(-2)
        mine = (found.row == head).nonzero().view(-1)
        entry = found.entry[mine]
        terms = found.terms[mine]
        sources = (trace.index[entry] % size).tolist()
        edge = [-1] * len(sources) if trace.edge is None else trace.edge[entry].tolist()
        is_far = trace.is_nonlocal[entry].tolist()
        ranks = None if trace.ranks is None else trace.ranks[:, entry].T.tolist()
        scores, to_class = trace.scores[entry].tolist(), (terms @ gradient).tolist()
        left = dict(local)
        sequence = []
        for place, (source, far) in enumerate(zip(sources, is_far, strict=True)):
            edges = [] if far else left.pop((source, edge[place]), [])
            sequence.append(
                Neighbour(
                    node=int(ego.nodes[source]),
                    name=self.name(int(ego.nodes[source])),
                    position=place,
                    kind="non-local" if far else "self" if source == ego.centre else "local",
                    hops=away.get(source, conv.hops),
                    score=scores[place],
                    edges=tuple(ego.edges[edges].tolist()),
                    ranks=None if ranks is None else tuple(ranks[place]),
                    terms=tuple(terms[place].tolist()),
                    contribution=to_class[place],
                )
            )
        return tuple(sequence), self._rejected(conv, call, ego, head, left)

    def _rejected(
        self, conv: Node2SeqConv, call: Call, ego: Ego, head: int, left: dict[tuple[int, int], list[int]]
    ) -> tuple[Neighbour, ...]:
        """The neighbours that are in no sequence, best first."""
        zeros = (0.0,) * conv.out_channels
        sources, edges = [source for source, _ in left], [edge for _, edge in left]
        scores = scores_of(conv, call, ego.centre, head, sources, edges) if left else []
        listed = sorted(zip(scores, sources, left.values(), strict=True), key=lambda each: -each[0])
        ranks = None if call.trace.ranks is None else (0.0,) * conv.kernel_size
        return tuple(
            Neighbour(
                node=int(ego.nodes[source]),
                name=self.name(int(ego.nodes[source])),
                position=None,
                kind="self" if source == ego.centre else "local",
                hops=int(source != ego.centre),
                score=score,
                edges=tuple(ego.edges[between].tolist()),
                ranks=ranks,
                terms=zeros,
                contribution=0.0,
            )
            for score, source, between in listed
        )

    def _integrate(
        self,
        name: str,
        calls: dict[str, Call],
        ego: Ego,
        removed: Tensor,
        predicted: int | None,
        score: float,
        steps: int,
    ) -> tuple[Tensor, float]:
        """The mean gradient of the score between zero and a layer's output at the node, and the score's
        difference between the two; ``score`` is that of the layers without the linear part, which adds the
        same to both.

        Node2Seq layers up to this one give what they gave: what they read need not be there any more.
        """
        known = list(calls)[: list(calls).index(name) + 1]
        part = ego
        field = self._field_of_layers
        if self.receptive_field.hops is not None and field.hops is not None and field.flows == FORWARDS:
            left = field.hops - sum(self.layers[each].hops for each in known)
            around = self.graph.around(int(ego.nodes[ego.centre]), field._replace(hops=max(left, 0)))
            part = _without(around, removed)
        found = self._integrate_over(part, known, calls, ego, predicted, steps)
        tolerance = torch.finfo(self.outputs.dtype).eps ** 0.5 * (1 + abs(score))
        if part is not ego and abs(found[1] - score) > tolerance:
            found = self._integrate_over(ego, known, calls, ego, predicted, steps)
        gradient, at_output, at_zero = found
        return gradient, at_output - at_zero

    def _integrate_over(
        self,
        part: Ego,
        known: Sequence[str],
        calls: dict[str, Call],
        ego: Ego,
        predicted: int | None,
        steps: int,
    ) -> tuple[Tensor, float, float]:
        """The mean gradient, and the scores with the layer's output and with zeros in its place.

        Args:
            part: What the passes go over: nodes that are in ``ego`` too.
            known: The layers that are not computed again, the one in question last.
            calls: What the layers gave in ``ego``.
            ego: The part that they were called for.
            predicted: The explained class.
            steps: The number of points.
        """
        output = calls[known[-1]].out[ego.centre].detach()
        points, weights = np.polynomial.legendre.leggauss(steps)
        # Both ends besides: their scores give the difference, and their gradients count for nothing.
        along = torch.tensor([0.0, 1.0, *(points + 1) / 2], dtype=output.dtype, device=output.device)
        share = torch.tensor([0.0, 0.0, *weights / 2], dtype=torch.float64, device=output.device)
        total = output.new_zeros(output.shape, dtype=torch.float64)
        rows = torch.searchsorted(ego.nodes, part.nodes)
        given_before = {each: calls[each].out[rows].detach() for each in known}
        scores: list[float] = []
        for batch in self._batches([part] * along.numel()):
            size, first = len(batch), len(scores)
            centres = torch.arange(size, device=output.device) * part.nodes.numel() + part.centre
            with torch.enable_grad():
                given = (along[first : first + size, None] * output).requires_grad_()
            outputs = {each: out.repeat(size, 1) for each, out in given_before.items()}
            layers_alone = giving(self.layers, outputs, known[-1], centres, given)
            with without_linear(self.model), layers_alone, torch.no_grad():
                found = self._score(self._outputs(batch), predicted)
            (gradient,) = torch.autograd.grad(found.sum(), given, allow_unused=True)
            if gradient is not None:
                total += share[first : first + size] @ gradient.double()
            scores += found.tolist()
        return total, scores[1], scores[0]

    @torch.no_grad()
    def _counterfactuals(
        self, ego: Ego, node: int, others: Sequence[int], outputs: Tensor, predicted: int | None
    ) -> Iterator[Counterfactual]:
        """The prediction without each of some neighbours, by passes over the part that can change."""
        if not others:
            return
        removed = [self._edges_between(node, other) for other in others]
        found = [self._outputs(batch) for batch in self._batches([_without(ego, edges) for edges in removed])]
        shown_before = self._shown(outputs)
        for other, edges, row in zip(others, removed, torch.cat(found), strict=True):
            shown, at = self._shown(row), predicted or 0
            yield Counterfactual(
                node=other,
                name=self.name(other),
                edges=tuple(edges.tolist()),
                probabilities=shown,
                predicted=self._predicted_class(row),
                change=shown[at] - shown_before[at],
            )


def _without(ego: Ego, removed: Tensor) -> Ego:
    """The part without some edges, as the graph lists them."""
    if not removed.numel():
        return ego
    kept = ~torch.isin(ego.edges, removed)
    return ego._replace(edges=ego.edges[kept], edge_index=ego.edge_index[:, kept])
