"""Many trainings on one graph: those of equal shapes are trained as one program."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from node2seq.data import fold_numbers, normalize_features
from node2seq.errors import Node2SeqError
from node2seq.nn.models import MODELS
from node2seq.ops import SparseRows
from node2seq.train.checks import check_features, graph_on
from node2seq.train.cross_fitting import FOLDS
from node2seq.train.fitter import Course, FitResult, SplitLike, as_read_by
from node2seq.train.program import Program, Standing
from node2seq.train.recipe import Recipe
from node2seq.train.stacking import PER_RUN, stack, take, unstack


@dataclass(frozen=True)
class Training:
    """One run: a model of :data:`node2seq.nn.models.MODELS`, how and on which nodes it is trained.

    ``seed`` draws its initial weights and decides about its dropout. With ``judge``, its outcome says what it
    is worth without a look at the test nodes, see :class:`Outcome`.
    """

    model: str
    recipe: Recipe
    split: SplitLike
    seed: int
    judge: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of a training: its result, or the error that ended it.

    ``model`` holds the weights of the best epoch, if models are kept. ``seconds`` is the time of the program
    it was part of, divided by the runs in it. ``judged``, if asked for, is the validation accuracy by
    cross-fitting: the nodes of each fold are looked at in the epoch that those of the other folds choose, so
    it is no overestimate as the best epoch's is.
    """

    result: FitResult | None
    error: str | None
    model: nn.Module | None
    seconds: float
    judged: float | None = None


@dataclass(frozen=True)
class Progress:
    """Where the trainings ``members`` (places in the sequence that was given) of one program stand.

    ``epoch`` counts those of the runs that still go on. ``best`` is the highest validation accuracy of each
    so far; None for one that has failed.
    """

    members: tuple[int, ...]
    epoch: int
    best: tuple[float | None, ...]


OnProgress = Callable[[Progress], Sequence[bool] | None]

# Epochs between two looks at how the runs stand: a look makes the host wait for the device.
LOOK_EVERY = 10
# The most that a run takes, over what a forward pass keeps for the backward: gradients, and what operations
# take in between.
_PEAK_OVER_KEPT = 4
# Of each entry of a graph that is copied for a run: its two nodes, weights, and plans to walk over them.
_BYTES_PER_ENTRY = 64
_SHARE_OF_FREE = 0.8
_CPU_BYTES = 2**31
# Entries are counted in 32 bits.
_MOST_ENTRIES = 2**30


def train_together(
    data: Data,
    trainings: Sequence[Training],
    *,
    device: torch.device | str | None = None,
    on_epoch: OnProgress | None = None,
    keep_models: bool = False,
    max_bytes: int | None = None,
    capture: bool = True,
) -> list[Outcome]:
    """Train all of ``trainings`` on the graph ``data`` and return their outcomes in the same order.

    Each outcome is that of the training alone. A run whose loss stops being finite ends with an error and
    leaves the others as they are.

    Args:
        data: The graph, with features as they are: the recipes say whether to normalise their rows.
        trainings: What to train.
        device: Where; the features' own if left out.
        on_epoch: Told now and then how the runs of a program stand; may return one truth value for each of
            them, and those with a true one end there, with what they have reached.
        keep_models: Whether the outcomes hold the trained models.
        max_bytes: Memory that the runs of one program may take together; a part of what is free if left out.
        capture: Whether epochs may be replayed as a CUDA graph.
    """
    data = Data(x=data.x, edge_index=data.edge_index, y=data.y)
    if device is not None:
        data = data.to(str(device))  # once, so that all programs share the plan of its edges
    groups: dict[Hashable, list[int]] = {}
    for number, training in enumerate(trainings):
        groups.setdefault(_shape(training), []).append(number)
    outcomes: dict[int, Outcome] = {}
    for members in groups.values():
        first = trainings[members[0]]
        graph = prepare_graph(data, first.recipe)
        views = first.recipe.settings.views
        most = most_at_once(lambda first=first, graph=graph: build(first, graph), graph, views, max_bytes)
        waiting = [members[i : i + most] for i in range(0, len(members), most)]
        while waiting:
            part = waiting.pop(0)
            try:
                runs = {number: trainings[number] for number in part}
                # Not held by a name: the next one needs its memory.
                outcomes |= _Group(graph, runs, keep_models=keep_models, capture=capture).train(on_epoch)
            except torch.OutOfMemoryError:
                if len(part) == 1:
                    raise
                half = len(part) // 2  # both start anew, and end as they would have
                waiting = [part[:half], part[half:], *waiting]
    return [outcomes[number] for number in range(len(trainings))]


class _Group:
    """Runs of equal shapes, trained as one program, and what became of each, by its number."""

    def __init__(
        self, graph: Data, trainings: Mapping[int, Training], *, keep_models: bool, capture: bool
    ) -> None:
        self._started, self._keep_models = time.monotonic(), keep_models
        model = stack([build(training, graph) for training in trainings.values()])
        x, edge_index, y = graph_on(model, graph)
        check_features(x)
        self._courses = {n: Course(t.split, y, t.recipe.settings) for n, t in trainings.items()}
        self._best: dict[int, float | None] = dict.fromkeys(trainings)
        self._members = list(trainings)  # of the program, which loses those that end
        self._judge = any(training.judge for training in trainings.values())  # all of them, or none
        nodes = [dict(course.nodes) for course in self._courses.values()]
        if self._judge:
            for own, training in zip(nodes, trainings.values(), strict=True):
                own["folds"] = fold_numbers(own["val"].numel(), FOLDS, training.seed)
        settings = [training.recipe.settings for training in trainings.values()]
        x = as_read_by(model, x)
        self._program = Program(model, x, edge_index, y, nodes, settings, stacked=True, capture=capture)
        self._outcomes: dict[int, Outcome] = {}

    def train(self, on_epoch: OnProgress | None) -> dict[int, Outcome]:
        """Train all of them to their ends."""
        while any((standing := self._program.standing()).active):
            if on_epoch is not None and self._program.epoch:
                self._tell(on_epoch, standing)
            ended = [run for run, active in enumerate(standing.active) if not active]
            if 2 * len(ended) >= len(self._members):
                self._narrow(ended)
            longest = max(run.epochs for run in self._program.settings)
            for _ in range(min(LOOK_EVERY, longest - self._program.epoch)):
                self._program.advance()
        self._collect(self._program, self._members)
        return self._outcomes

    def _tell(self, on_epoch: OnProgress, standing: Standing) -> None:
        """Say how all runs stand, and end those that are no longer wanted."""
        for number, hits, failed in zip(self._members, standing.best_hits, standing.failed, strict=True):
            nodes = self._courses[number].nodes["val"].numel()
            self._best[number] = None if failed or hits < 0 else hits / nodes
        stop = on_epoch(Progress(tuple(self._best), self._program.epoch, tuple(self._best.values())))
        if stop is not None:
            unwanted = {number for number, unwanted in zip(self._best, stop, strict=True) if unwanted}
            self._program.stop([number in unwanted for number in self._members])

    def _narrow(self, ended: list[int]) -> None:
        """Go on with the runs that have not ended, as a smaller program."""
        left = [run for run in range(len(self._members)) if run not in ended]
        done, program = (self._program.take(take(self._program.model, runs), runs) for runs in (ended, left))
        self._collect(done, [self._members[run] for run in ended])
        self._program, self._members = program, [self._members[run] for run in left]

    def _collect(self, program: Program, members: Sequence[int]) -> None:
        """Measure what the runs of a program have reached."""
        standing, history, logits = program.standing(), program.history(), program.finish()
        judged = program.judged() if self._judge else [None] * len(members)
        seconds = (time.monotonic() - self._started) / len(self._courses)
        for run, number in enumerate(members):
            course = self._courses[number]
            # A run that fails has one row more: the one that says so.
            rows = history[: standing.epochs[run] + standing.failed[run]]
            try:
                for row in rows:
                    course.add(row[run])
                result, error = course.result(logits[run]), None
            except Node2SeqError as problem:
                result, error = None, str(problem)
            kept = unstack(program.model, run) if self._keep_models and error is None else None
            self._outcomes[number] = Outcome(result, error, kept, seconds, judged[run] if result else None)


def _shape(training: Training) -> Hashable:
    """What runs of one program have in common."""
    recipe = training.recipe
    options = {name: value for name, value in recipe.options.items() if name not in PER_RUN}
    shared = (recipe.settings.optimizer, recipe.settings.views, recipe.row_normalize, training.judge)
    return (training.model, repr(sorted(options.items())), *shared)


def most_at_once(
    make_model: Callable[[], nn.Module], graph: Data, views: int = 1, max_bytes: int | None = None
) -> int:
    """How many runs of such models fit into memory together.

    Args:
        make_model: Makes one, on the graph's device.
        graph: What it is trained on.
        views: Forward passes per step.
        max_bytes: The memory; a part of what is free if left out.
    """
    assert graph.x is not None
    assert graph.edge_index is not None
    model = make_model()
    x = as_read_by(model, graph.x)
    entries = graph.edge_index.size(1) + graph.x.size(0)
    if isinstance(x, SparseRows):  # copied for each run as edges are
        entries += x.sequences.rows.num_entries
    each = _PEAK_OVER_KEPT * views * _kept_bytes(model, x, graph.edge_index)
    each += _BYTES_PER_ENTRY * entries
    if max_bytes is None:
        max_bytes = _CPU_BYTES
        if graph.x.is_cuda:
            free, _ = torch.cuda.mem_get_info(graph.x.device)
            unused = torch.cuda.memory_reserved(graph.x.device) - torch.cuda.memory_allocated(graph.x.device)
            max_bytes = int(_SHARE_OF_FREE * (free + unused))
    return max(1, min(max_bytes // each, _MOST_ENTRIES // entries))


def _kept_bytes(model: nn.Module, x: Tensor | SparseRows, edge_index: Tensor) -> int:
    """What a forward pass keeps for its backward, beside what all runs share."""
    kept: dict[int, Tensor] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        _ = model.train()(x, edge_index)
    inputs = (x.values if isinstance(x, SparseRows) else x, edge_index)
    shared = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    return sum(t.untyped_storage().nbytes() for at, t in kept.items() if at not in shared)


def prepare_graph(data: Data, recipe: Recipe, device: torch.device | str | None = None) -> Data:
    """The graph as a recipe wants it, on the device; ``data`` stays as it is."""
    assert data.x is not None
    graph = Data(x=data.x, edge_index=data.edge_index, y=data.y)
    if recipe.row_normalize:
        graph.x = normalize_features(data.x)
    return graph if device is None else graph.to(str(device))


def build(training: Training, data: Data) -> nn.Module:
    """The untrained model of a training for a graph, on its device and in its features' precision."""
    assert data.x is not None
    assert isinstance(data.y, torch.Tensor)
    torch.manual_seed(training.seed)
    model = MODELS[training.model](
        data.num_features, out_channels=int(data.y.max()) + 1, **training.recipe.options
    )
    return model.to(data.x.device, torch.promote_types(data.x.dtype, torch.float32))
