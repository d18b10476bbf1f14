"""Under ``torch.compile``: opaque steps that run the very backends of eager mode on the plan of the graph.

While a graph is traced, its edge index stands for its sequences: the plan is looked up where a step runs.
Tensors with a value for each entry are as long there as entries could be, since no traced shape depends on
values; what duplicate edges leave over stands at the end of each copy of the graph. ``torch.export`` takes
the plain way of :mod:`node2seq.ops.reference` instead: what it exports has to run without this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from node2seq.ops.autograd_record import Record, record_of
from node2seq.ops.dispatch import WRAPPERS, choose_backend
from node2seq.ops.edge_values import EdgeValues
from node2seq.ops.layer import convolve, hard_ranks, rank
from node2seq.ops.own_memory import in_own_memory
from node2seq.ops.plan_cache import GraphNumbers
from node2seq.ops.sequences import Convolution, Positions, Ranking, Root, Rows, Sequences

# Plans are built and looked up on the host: nothing that a CUDA graph could replay.
_TAGS = (torch.Tag.cudagraph_unsafe,)


class Call(NamedTuple):
    """The arguments of the ops; what the given tensors are depends on the function."""

    function: str
    backend: str  # the user's choice
    graph: Sequence[int]
    edge_index: Tensor
    given: Sequence[Tensor]
    wants: Sequence[bool]  # whether each of them wants a gradient
    number: float  # no default: traced from there, it would be one of the graph's inputs
    readout: str = ""
    # How neighbours are chosen and sorted:
    order: str = "attention"
    hops: int = 1
    joint: bool = True
    threshold: Tensor | None = None  # one for each target, where not the number is the threshold of all
    query: Tensor | None = None  # the targets' projections, where they are not the sources'
    seed: Tensor | None = None
    carried: str = ""  # what edges carry: the last of the given tensors, by name
    num_ranks: int = 0
    sources: Tensor | None = None  # the source of each entry, where it is not the graph's own
    max_candidates: int = 0  # 0: all

    def edges(self, *values: Tensor) -> EdgeValues | None:
        """What edges carry."""
        if not self.carried:
            return None
        named = dict(zip(self.carried.split(), values, strict=True))
        entry = GraphNumbers(*self.graph).find_entries(self.edge_index)
        return EdgeValues(entry, named.get("weight"), named.get("attr"), named.get("order"))

    def rank(self, key: Tensor, edges: EdgeValues | None = None, then: Convolution | None = None) -> Ranking:
        """The order of the neighbours."""
        graph, query = GraphNumbers(*self.graph), key if self.query is None else self.query
        sequences = graph.find(self.edge_index, self.backend)
        if graph.copies > 1:
            is_shared = query is key
            key = key.view(graph.copies, -1, key.size(-1))
            query = key if is_shared else query.view(graph.copies, -1, key.size(-1))
        return rank(
            query,
            key,
            sequences,
            hops=self.hops,
            threshold=self.number if self.threshold is None else self.threshold,
            joint=self.joint,
            max_candidates=self.max_candidates or None,
            order=self.order,
            seed=self.seed,
            edges=edges,
            then=then,
            backend=self.backend,
        )

    def convolve(
        self, key: Tensor, weight: Tensor, *own: Tensor, with_winner: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """The readout, with own features and a bias if given, and the winners of a maximum if asked for."""
        edges = self.edges(*own)
        if edges is not None:
            runs = key.view(self.graph[-1], -1, key.size(-1))
            ranking = self.rank(key, edges)
            out, winner = convolve(runs, weight, ranking, self.readout, edges=edges, with_winner=with_winner)
            return out.flatten(0, -2), winner
        ranking = self.rank(key, then=Convolution(weight.size(-3), self.readout, bool(own)))
        root = Root(own[0], own[1] if own[1:] else None) if own else None
        return convolve(key, weight, ranking, self.readout, root, with_winner=with_winner)

    def over(self, readout: str, x: Tensor, *others: Tensor) -> Call:
        """What convolves over the sequences that this one ranks; ``x`` has to be what they are ranked by."""
        return self._replace(function="convolve", readout=readout, given=[x, *others])

    def run(self, *given: Tensor) -> Tensor:
        """What the function makes of the tensors."""
        if self.function == "convolve":
            return self.convolve(*given)[0]
        if self.function.endswith(("ranks", "scores")):
            return self._run_ranks(*given)
        first, second = given
        graph = GraphNumbers(*self.graph)
        sequences = graph.find(self.edge_index, self.backend).copies(graph.copies)
        backend = choose_backend(self.backend, first)
        if self.function == "attention":
            weights = backend.attention(first, second, sequences, self.number)
            return graph.pad(weights, self.edge_index)
        weights = graph.cut(second, sequences)
        if self.function == "aggregate":
            return backend.aggregate(first, sequences, weights)
        return backend.largest(first, sequences, weights, int(self.number))

    def _run_ranks(self, first: Tensor, *others: Tensor) -> Tensor:
        """The functions of ranks."""
        graph, backend = GraphNumbers(*self.graph), choose_backend(self.backend, first)
        if self.function == "hard_ranks":
            found = hard_ranks(self.rank(first, self.edges(*others)), self.num_ranks, self.hops, first.dtype)
            return graph.pad(found.weights, self.edge_index)
        step = getattr(backend, self.function)
        sequences = graph.find(self.edge_index, self.backend).copies(graph.copies)
        if self.sources is not None:
            table = others[0] if self.function == "pair_scores" else first
            index = graph.cut(self.sources, sequences)
            is_own = table.size(0) == sequences.num_sources  # a row for each node, not for each entry
            origin = (sequences, None) if is_own else None
            sequences = Sequences(sequences.rows, index, table.size(0), origin)
        if self.function == "convolve_ranks":
            weight, ranks = others
            return step(first, weight, graph.cut(ranks, sequences), sequences)
        if self.function == "pair_scores":
            return graph.pad(step(first, *others, sequences), self.edge_index)
        return graph.pad(step(graph.cut(first, sequences), sequences, self.num_ranks), self.edge_index)

    def shape(self) -> tuple[int, ...]:
        """The shape of what it makes."""
        graph, channels = GraphNumbers(*self.graph), self.given[0].size(-1)
        rows = graph.num_targets * graph.copies
        if self.function in ("soft_ranks", "hard_ranks"):
            return self.num_ranks, graph.most_entries(self.edge_index) * graph.copies
        if self.function in ("convolve", "convolve_ranks"):
            return rows, self.given[1].size(-1)
        if self.function == "aggregate":
            return rows, channels
        if self.function == "largest":
            return rows, int(self.number), channels
        return (graph.most_entries(self.edge_index) * graph.copies,)


_CALL = (
    "str function, str backend, SymInt[] graph, Tensor edge_index, Tensor[] given, bool[] wants, "
    "float number, str readout, str order, int hops, bool joint, "
    "Tensor? threshold, Tensor? query, Tensor? seed, str carried, int num_ranks, Tensor? sources, "
    "int max_candidates"
)


def _op(name: str, returns: str, takes: str = _CALL) -> Any:
    """Makes a custom op of a function."""
    schema = f"({takes}) -> {returns}"
    make = torch.library.custom_op(f"node2seq::{name}", mutates_args=(), schema=schema, tags=_TAGS)
    return lambda function: make(in_own_memory(function))


@_op("forward", "(Tensor, Tensor)")
def _forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    """The result of a function, and the token under which its backward op finds what it needs."""
    call = Call(*arguments)
    token = call.edge_index.new_empty(0)
    if not any(call.wants):
        return call.run(*call.given), token
    return Record(call.run, call.given, call.wants).keep(token), token


@_forward.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor]:
    call = Call(*arguments)
    return call.given[0].new_empty(call.shape()), call.edge_index.new_empty(0)


@_op("backward", "Tensor[]", takes=f"Tensor grad, Tensor token, {_CALL}")
def _backward(grad: Tensor, token: Tensor, *arguments: Any) -> list[Tensor]:
    """The gradients of those of the given tensors that want one."""
    call = Call(*arguments)
    record = record_of(token) or Record(call.run, call.given, call.wants)
    return record.gradients(call.given, grad.contiguous())


@_backward.register_fake
def _(_grad: Tensor, _token: Tensor, *arguments: Any) -> list[Tensor]:
    call = Call(*arguments)
    both = zip(call.given, call.wants, strict=True)
    return [tensor.new_empty(tensor.shape) for tensor, wants in both if wants]


_TENSORS = ("edge_index", "threshold", "query", "seed", "sources")


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    fields = Call(*inputs)._asdict()
    tensors = [fields.pop(name) for name in _TENSORS]
    ctx.save_for_backward(output[1], *tensors, *fields.pop("given"))
    ctx.others = fields


def _differentiate(ctx: Any, grad: Tensor, _token: Tensor) -> tuple:
    token, *tensors = ctx.saved_tensors
    given = tensors[len(_TENSORS) :]
    call = Call(**ctx.others, given=given, **dict(zip(_TENSORS, tensors[: len(_TENSORS)], strict=True)))
    found = iter(_backward(grad, token, *call))
    gradients = [next(found) if wants else None for wants in call.wants]
    return tuple(gradients if name == "given" else None for name in Call._fields)


_forward.register_autograd(_differentiate, setup_context=_keep)


@_op("winner", "Tensor")
def _winner(*arguments: Any) -> Tensor:
    """The winning window of each channel."""
    call = Call(*arguments)
    _, winner = call.convolve(*call.given, with_winner=True)
    assert winner is not None
    return winner.long()


@_winner.register_fake
def _(*arguments: Any) -> Tensor:
    call = Call(*arguments)
    return call.edge_index.new_empty(call.shape(), dtype=torch.int64)


@_op("rank", "(Tensor, Tensor, Tensor)")
def _rank(*arguments: Any) -> tuple[Tensor, ...]:
    """The node, the score and the entry at each position."""
    call = Call(*arguments)
    graph = GraphNumbers(*call.graph)
    key, *values = call.given
    node, score, entry = call.rank(key, call.edges(*values))
    pad = graph.pad
    return pad(node, call.edge_index), pad(score, call.edge_index), graph.pad_entries(entry, call.edge_index)


@_rank.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    call = Call(*arguments)
    graph = GraphNumbers(*call.graph)
    entries = graph.most_entries(call.edge_index) * graph.copies
    node = call.edge_index.new_empty(entries, dtype=torch.int64)
    return node, call.given[0].new_empty(entries), torch.empty_like(node)


# The entry of each edge, and whether the last self loop of a node is its self entry.
_ENTRIES = {"entry": False, "entry or loop": True}


@_op("plan", "Tensor", takes="str part, ScalarType dtype, SymInt[] graph, Tensor edge_index")
def _part_of_plan(part: str, dtype: torch.dtype, graph: Sequence[int], edge_index: Tensor) -> Tensor:
    """One of the tensors of a plan, by name."""
    numbers = GraphNumbers(*graph)
    sequences = numbers.find(edge_index).copies(numbers.copies)
    rows = sequences.rows
    if part == "ptr":
        return numbers.pad_starts(rows.ptr, edge_index)
    if part == "length":
        return rows.length()
    if part in _ENTRIES:
        return numbers.find_entries(edge_index, _ENTRIES[part]).clone()
    if part == "target":  # what is left over stands behind the last row
        return numbers.pad(rows.target, edge_index, fill=rows.num_rows)
    return numbers.pad(sequences.index if part == "index" else sequences.gcn_weights(dtype), edge_index)


@_part_of_plan.register_fake
def _(part: str, dtype: torch.dtype, graph: Sequence[int], edge_index: Tensor) -> Tensor:
    numbers = GraphNumbers(*graph)
    if part in ("ptr", "length"):
        rows = numbers.num_targets * numbers.copies
        return edge_index.new_empty(rows + 1 if part == "ptr" else rows, dtype=dtype)
    if part in _ENTRIES:
        return edge_index.new_empty(edge_index.size(1), dtype=dtype)
    return edge_index.new_empty(numbers.most_entries(edge_index) * numbers.copies, dtype=dtype)


class TracedRows(Rows):
    """The rows of several copies of a graph that is traced.

    What is left over stands at the end of each copy, so that rows may lie further apart than they are long.

    Args:
        ptr (torch.Tensor): Where each row starts, and behind them the number of all entries, [N + 1].
        target (torch.Tensor): The row of each entry, or N for those left over, [E].
        length (torch.Tensor): The number of entries of each row, [N].
    """

    def __init__(self, ptr: Tensor, target: Tensor, length: Tensor) -> None:
        super().__init__(ptr, target)
        self._length = length

    def length(self) -> Tensor:
        """The number of entries of each row, [N]."""
        return self._length

    def position(self) -> Tensor:
        """The place of each entry within its row, [E]; of those left over zero."""
        return super().position().clamp(min=0)


class TracedSequences(Sequences):
    """The sequences of a graph that is traced.

    Args:
        edge_index (torch.Tensor): The edges.
        graph (GraphNumbers): Its numbers.
        sources (torch.Tensor, optional): The source of each entry, where it is not the graph's own.
    """

    def __init__(self, edge_index: Tensor, graph: GraphNumbers, sources: Tensor | None = None) -> None:
        self.edge_index, self.graph, self.sources = edge_index, graph, sources
        # Steps that nobody reads are no part of the compiled graph.
        shape = self._part("ptr"), self._part("target")
        rows = Rows(*shape) if graph.copies == 1 else TracedRows(*shape, self._part("length"))
        index = self._part("index") if sources is None else sources
        super().__init__(rows, index, graph.num_sources * graph.copies)

    def with_sources(self, index: Tensor) -> Sequences:
        """Sequences of the same lengths with other sources."""
        return TracedSequences(self.edge_index, self.graph, index)

    @property
    def positions(self) -> Sequences:
        """Sequences of the same lengths in which each position is a source of its own."""
        numbers = torch.arange(self.index.numel(), device=self.index.device)
        found = TracedSequences(self.edge_index, self.graph, numbers)
        found.num_sources = numbers.numel()
        return found

    def _part(self, part: str, dtype: torch.dtype = torch.int64) -> Tensor:
        return _part_of_plan(part, dtype, list(self.graph), self.edge_index)

    def entry_of_edge(self, keep_loops: bool) -> Tensor:
        """The entry of each edge within one copy, [edges]."""
        return self._part("entry or loop" if keep_loops else "entry")

    def copies(self, count: int) -> Sequences:
        """The disjoint union of that many copies of the graph."""
        return self if count == 1 else TracedSequences(self.edge_index, self.graph._replace(copies=count))

    def gcn_weights(self, dtype: torch.dtype) -> Tensor:
        """The weight 1 / sqrt(k_i k_j) of each entry of a square graph."""
        return self._part("gcn_weights", dtype)


class CompiledBackend:
    """A backend whose operations are opaque steps of a traced graph. The layout of its rankings is a call.

    Args:
        name (str): The user's choice of the backend that runs within.
    """

    ADDS_ROOT = True

    def __init__(self, name: str) -> None:
        self.name = name

    def trace_rank(
        self,
        query: Tensor,
        key: Tensor,
        sequences: TracedSequences,
        hops: int,
        threshold: float | Tensor,
        joint: bool,
        max_candidates: int | None,
        order: str,
        seed: Tensor | None,
        edges: EdgeValues | None,
    ) -> Ranking:
        """The order of the neighbours; see :func:`node2seq.ops.rank`. What nobody asks for is not traced."""
        is_number = not isinstance(threshold, Tensor)
        carried = _carried(edges)
        values = [values.detach() for values in carried.values()]
        call = self._call("rank", sequences, [key.detach(), *values])._replace(
            number=threshold if is_number else 0.0,
            order=order,
            hops=hops,
            joint=joint,
            max_candidates=max_candidates or 0,
            threshold=None if is_number else threshold,
            query=None if query is key else query.detach(),
            seed=seed,
            carried=" ".join(carried),
        )
        return Ranking(sequences, call, lambda: Positions(*_rank(*call)), self)

    def convolve_max(
        self, x: Tensor, weight: Tensor, ranked: Call, root: Tensor | None = None, bias: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Equations 5 and 6 with the largest window per channel, and with a root equation 7."""
        call = ranked.over("max", x, weight, *_given(root, bias))
        return _result(call), _winners(call)

    def convolve_sum(
        self,
        x: Tensor,
        weight: Tensor,
        ranked: Call,
        root: Tensor | None = None,
        bias: Tensor | None = None,
        *,
        is_mean: bool = False,
    ) -> Tensor:
        """Equations 5 and 6 with the sum or the mean over windows, and with a root equation 7."""
        return _result(ranked.over("mean" if is_mean else "sum", x, weight, *_given(root, bias)))

    def convolve_edges(
        self, x: Tensor, weight: Tensor, ranked: Call, readout: str, edges: EdgeValues
    ) -> tuple[Tensor, Tensor | None]:
        """Equations 5 and 6 over what edges carry."""
        call = ranked.over(readout, x.flatten(0, -2), weight, *_carried(edges).values())
        out = _result(call).view(*x.shape[:-2], -1, weight.size(-1))
        return out, _winners(call) if readout == "max" else None

    def aggregate(self, x: Tensor, sequences: TracedSequences, weight: Tensor) -> Tensor:
        """The weighted sum of each target's sources."""
        return _result(self._call("aggregate", sequences, [x, weight]))

    def attention(self, source: Tensor, target: Tensor, sequences: TracedSequences, slope: float) -> Tensor:
        """The softmax over each sequence of an activated sum of two terms."""
        return _result(self._call("attention", sequences, [source, target])._replace(number=slope))

    def largest(self, x: Tensor, sequences: TracedSequences, weight: Tensor, count: int) -> Tensor:
        """The largest weighted source values of each sequence, channel by channel."""
        call = self._call("largest", sequences, [x, weight.detach()])
        return _result(call._replace(number=float(count)))

    def pair_scores(self, query: Tensor, key: Tensor, sequences: TracedSequences) -> Tensor:
        """The inner product of each entry's target and source."""
        return _result(self._call("pair_scores", sequences, [query, key])._replace(sources=sequences.sources))

    def soft_ranks(self, score: Tensor, sequences: TracedSequences, count: int) -> Tensor:
        """How much of each entry stands at each of the first ranks."""
        return _result(self._call("soft_ranks", sequences, [score])._replace(num_ranks=count))

    def trace_hard_ranks(self, ranked: Call, count: int) -> Tensor:
        """Which entry stands at each of the first ranks."""
        return _result(ranked._replace(function="hard_ranks", num_ranks=count))

    def convolve_ranks(self, x: Tensor, weight: Tensor, ranks: Tensor, sequences: TracedSequences) -> Tensor:
        """A matrix for each rank and one for the mean of all."""
        call = self._call("convolve_ranks", sequences, [x, weight, ranks])
        return _result(call._replace(sources=sequences.sources))

    def _call(self, function: str, sequences: TracedSequences, given: list[Tensor]) -> Call:
        return Call(function, self.name, list(sequences.graph), sequences.edge_index, given, [], 0.0)


def _given(*tensors: Tensor | None) -> list[Tensor]:
    return [tensor for tensor in tensors if tensor is not None]


def _carried(edges: EdgeValues | None) -> dict[str, Tensor]:
    """What edges carry, by name."""
    if edges is None:
        return {}
    every = {"weight": edges.weight, "attr": edges.attr, "order": edges.order}
    return {name: values for name, values in every.items() if values is not None}


def _result(call: Call) -> Tensor:
    """What a call makes; differentiable in the given tensors."""
    wants = [torch.is_grad_enabled() and tensor.requires_grad for tensor in call.given]
    return _forward(*call._replace(wants=wants))[0]


def _winners(call: Call) -> Tensor:
    """Worked out once more if they are asked for, which is rare: they take more memory than the result."""
    return _winner(*call._replace(given=[tensor.detach() for tensor in call.given]))


WRAPPERS.append(CompiledBackend)
