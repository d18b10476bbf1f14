"""How far each of R runs is: its epochs, the best of them, when it ends, and what its weights reach.

:class:`EarlyStopping` works that out on the device, so that an epoch can be recorded and replayed. The host
reads the figures when it wants to know, and keeps them in a :class:`RunProgress` for each run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from node2seq.data.splits import PARTS
from node2seq.errors import Node2SeqError
from node2seq.nn.conv.node2seq import Node2SeqConv
from node2seq.nn.conv.ranks import Trace, learned_matrices
from node2seq.train.cross_fitting import FOLDS, Folds
from node2seq.train.inputs import SplitLike, check_split, measured_parts, split_parts
from node2seq.train.measured import Calibration, LinearGain, Measured, result_warnings
from node2seq.train.metrics import FirstNeighbours, Score, agreement, by_degree, reliability
from node2seq.train.settings import TrainSettings
from node2seq.train.step import Part, mean_over
from node2seq.train.task import Classification, MultiLabel, Task, task_for


@dataclass(frozen=True)
class EpochRecord:
    """What is known after an epoch. The test nodes are not among it: nothing may select on them.

    Args:
        epoch: Its number, from 1.
        loss: Of the training step.
        train_accuracy: On training nodes; where no classes are predicted, the metric that ``by_node`` names.
        val_loss: On validation nodes.
        val_accuracy: The same as ``train_accuracy`` on validation nodes.
        val_score: The metric that chooses the epoch; an error is negative.
        by_node: The metric that replaces the accuracy.
    """

    epoch: int
    loss: float
    train_accuracy: float
    val_loss: float
    val_accuracy: float
    val_score: float
    by_node: str = Classification.by_node

    def to_dict(self) -> dict[str, float]:
        """A line for a file, in which each figure has its own name."""
        values = asdict(self)
        name = values.pop("by_node")
        return {key.replace("accuracy", name): value for key, value in values.items()}


@dataclass(frozen=True)
class BatchProgress:
    """How far an epoch of mini-batches is.

    Args:
        epoch: Its number, from 1.
        doing: ``"training"`` or ``"measuring"``.
        done: Seed nodes so far.
        total: All of them.
    """

    epoch: int
    doing: str
    done: int
    total: int


OnBatch = Callable[[BatchProgress], None]


@dataclass(frozen=True)
class FitResult:
    """The chosen epoch and what the model reaches with its weights.

    ``test`` is None without test nodes, ``test_rest`` unless it is asked for and differs from ``test``.
    """

    best: EpochRecord
    history: tuple[EpochRecord, ...]
    train: Measured
    val: Measured
    test: Measured | None
    warnings: tuple[str, ...]
    test_rest: Measured | None = None
    task: Task = field(default_factory=Classification)
    """What is predicted; of numbers, the scale of the model's outputs; of classes, the temperature."""
    calibration: Calibration | None = None
    """How far the probabilities were off before and after, where there are any."""
    linear: LinearGain | None = None
    """What the linear part of the network adds to it, if it has one."""

    @property
    def metrics(self) -> dict[str, Measured]:
        """What was measured, by the part of the split."""
        measured = {name: getattr(self, name) for name in (*PARTS, "test_rest")}
        return {name: metrics for name, metrics in measured.items() if metrics is not None}


class RunProgress:
    """One run's split, settings and warnings, and its epochs so far.

    Args:
        split: Its nodes.
        y: The labels of all nodes.
        settings: How it is trained.
    """

    def __init__(self, split: SplitLike, y: Tensor, settings: TrainSettings) -> None:
        self.split, self.settings = split, settings
        self.nodes = split_parts(split, y.device)
        check_split(self.nodes, y)
        self.task = task_for(y, self.nodes["train"], settings.loss)
        self.task.check(settings)
        self.warnings = self.task.warnings(self.nodes, y)
        self.history: list[EpochRecord] = []
        self.best: EpochRecord | None = None
        self.error: Node2SeqError | None = None
        """What ended it, if its loss stopped being finite."""
        self.last_epoch = settings.epochs
        self.linear: LinearGain | None = None

    @property
    def active(self) -> bool:
        """Whether it is trained further: epochs are left, patience has not run out, the loss is finite."""
        epoch, patience = len(self.history), self.settings.patience
        waited = epoch - self.best.epoch if self.best is not None else 0
        return self.error is None and epoch < self.last_epoch and (patience is None or waited < patience)

    def add(self, row: Sequence[float]) -> None:
        """Take in the next epoch, a row of the history that the device keeps."""
        loss, val_loss, train_hits, val_hits, best_epoch, *score = row
        epoch = len(self.history) + 1
        if not (math.isfinite(loss) and math.isfinite(val_loss)):
            self.error = Node2SeqError(
                f"lr={self.settings.lr}",
                f"the loss became {loss} (validation: {val_loss}) in epoch {epoch}",
                "Train with a lower learning rate, and look for features of very different size",
            )
            return
        val_accuracy = val_hits / self.nodes["val"].numel()
        record = EpochRecord(
            epoch=epoch,
            loss=loss,
            train_accuracy=train_hits / self.nodes["train"].numel(),
            val_loss=val_loss,
            val_accuracy=val_accuracy,
            val_score=score[0] if score else val_accuracy,
            by_node=self.task.by_node,
        )
        self.history.append(record)
        self.best = self.history[int(best_epoch) - 1]

    def result(self, logits: Tensor, y: Tensor, *, with_rest: bool = False) -> FitResult | None:
        """Measure what the best epoch's weights give, ``[nodes, outputs]``; None if there is no such epoch.

        Args:
            logits: Of all nodes.
            y: Their labels.
            with_rest: Whether to measure the split's ``test_rest`` too, where it differs from ``test``.
        """
        if self.best is None:
            return None
        parts = measured_parts(self.split, with_rest=with_rest)
        places = {name: index.to(y.device) for name, index in parts.items()}
        measured = {name: self.task.measure(logits[index], y[index]) for name, index in places.items()}
        task, calibration = self._calibrated(logits, y, places)
        return FitResult(
            best=self.best,
            history=tuple(self.history),
            train=measured["train"],
            val=measured["val"],
            test=measured.get("test"),
            warnings=(*self.warnings, *result_warnings(measured, self.settings.metric)),
            test_rest=measured.get("test_rest"),
            task=task,
            calibration=calibration,
            linear=self.linear,
        )

    def _calibrated(
        self, outputs: Tensor, y: Tensor, places: Mapping[str, Tensor]
    ) -> tuple[Task, Calibration | None]:
        """The task with calibrated probabilities, and how far they were off on each part of the split."""
        val = places["val"]
        task = self.task.calibrated(outputs[val], y[val])
        if not isinstance(task, Classification | MultiLabel):
            return task, None
        before, after = (
            {name: kind.calibration_error(outputs[index], y[index]) for name, index in places.items()}
            for kind in (replace(task, temperature=1.0), task)
        )
        return task, Calibration(task.temperature, before, after)


def score_of(task: Task, metric: str) -> Score | None:
    """What an epoch is chosen by; None for the metric that is a mean over nodes."""
    return None if metric == task.by_node else task.score(metric)


# What is kept of each epoch and run: the columns of the history.
COLUMNS = ("loss", "val_loss", "train_hits", "val_hits", "best_epoch")
# The parts of the state that have a row for each epoch; the second only with folds, the third only where a
# metric chooses that is no mean over nodes, as the accuracy is.
BY_EPOCH = ("history", "tallies", "scores")


class EarlyStopping:
    """Chooses the epoch of the highest metric on validation nodes, then lowest loss there, then the first.

    Args:
        settings: How each run is trained: its epochs, its patience and the metric, which all have in common.
        train: The training nodes.
        val: The validation nodes.
        weights: The weights to start from; those of the best epoch so far are kept in a copy.
        folds: The validation nodes' folds, for :meth:`cross_fitted`.
    """

    def __init__(
        self,
        settings: Sequence[TrainSettings],
        train: Part,
        val: Part,
        weights: Mapping[str, Tensor],
        folds: Folds | None = None,
    ) -> None:
        self.best = {name: tensor.clone() for name, tensor in weights.items()}
        self._train, self._val, self._folds = train, val, folds
        self._score = score_of(train.task, settings[0].metric)
        device, runs = train.nodes.device, len(settings)

        def fill(value: float, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.full(shape, value, dtype=dtype, device=device)

        longest = max(run.epochs for run in settings)
        never = longest + 1
        self.state = {
            "epoch": fill(0),
            "epochs": fill(0, runs),
            "best_epoch": fill(0, runs),
            "best_score": fill(-torch.inf, runs, dtype=torch.float64),
            "best_loss": fill(torch.inf, runs, dtype=torch.float64),
            "failed": fill(False, runs, dtype=torch.bool),
            "last": torch.tensor([run.epochs for run in settings], device=device),
            "patience": torch.tensor([run.patience or never for run in settings], device=device),
            "history": fill(0, longest, runs, len(COLUMNS), dtype=torch.float64),
        }
        if folds is not None:
            self.state["tallies"] = fill(0, longest, runs, FOLDS, folds.columns, dtype=torch.float64)
        if self._score is not None:
            self.state["scores"] = fill(0, longest, runs, dtype=torch.float64)

    @torch.no_grad()
    def update(self, losses: Tensor, logits: Tensor, weights: Mapping[str, Tensor]) -> None:
        """Write down an epoch, and keep the weights of the runs whose best it is.

        Args:
            losses: The training loss of each run, [R].
            logits: What the weights give, [R, N, outputs].
            weights: What to keep.
        """
        state = self.state
        waited = state["epoch"] - state["best_epoch"]
        active = ~state["failed"] & (state["epoch"] < state["last"]) & (waited < state["patience"])
        credit, val_losses = self._val.credit(logits), self._val.losses(logits)
        val_loss, val_hits = mean_over(self._val.real, val_losses).double(), credit.sum(1)
        val_logits, score = self._val.of(logits), val_hits.double()
        if self._score is not None:
            score = self._score(val_logits, self._val.labels, self._val.real).nan_to_num(0.0)
        row = state["epoch"].clone().view(1)
        state["epoch"] += 1
        finite = losses.isfinite() & val_loss.isfinite()
        state["failed"] |= active & ~finite
        active = active & finite
        state["epochs"] += active
        # A higher score, then a lower loss; the first of equals stays.
        equal = score == state["best_score"]
        better = active & ((score > state["best_score"]) | (equal & (val_loss < state["best_loss"])))
        for name, value in (("best_score", score), ("best_loss", val_loss), ("best_epoch", state["epoch"])):
            state[name].copy_(torch.where(better, value, state[name]))
        for name, tensor in weights.items():
            chosen = better.view(-1, *[1] * (tensor.dim() - 1)) if tensor.dim() else better[0]
            self.best[name].copy_(torch.where(chosen, tensor, self.best[name]))
        figures = (losses, val_loss, self._train.credit(logits).sum(1), val_hits, state["best_epoch"])
        state["history"].index_copy_(0, row, torch.stack([f.double() for f in figures], dim=1)[None])
        if self._folds is not None:
            tally = self._folds.tally(credit, val_losses, val_logits, self._val.labels)
            state["tallies"].index_copy_(0, row, tally[None])
        if self._score is not None:
            state["scores"].index_copy_(0, row, score[None])

    def history(self, first: int, end: int) -> list[list[list[float]]]:
        """The figures of the epochs from ``first`` (from 0) up to ``end``: by epoch, run, :data:`COLUMNS`.

        Behind them the score, where a metric chooses that is no mean over nodes. Waits for the device.
        """
        figures = self.state["history"][first:end]
        if self._score is not None:
            figures = torch.cat([figures, self.state["scores"][first:end, :, None]], dim=-1)
        return figures.tolist()

    def cross_fitted(self, epochs: int) -> list[float]:
        """The metric of each run on validation nodes with the epoch chosen for each fold by the others.

        Args:
            epochs: How many were trained. For a run that failed the value means nothing.
        """
        assert self._folds is not None
        return self._folds.judge(self.state["tallies"][:epochs], self.state["epochs"]).tolist()

    def stop(self, runs: Sequence[bool]) -> None:
        """End the runs that are marked, with what they have reached."""
        last = self.state["last"]
        ended = torch.tensor(runs, device=last.device)
        last.copy_(torch.where(ended, torch.minimum(last, self.state["epoch"]), last))

    def state_dict(self, epochs: int) -> dict[str, Tensor]:
        """The figures of the runs, of as many epochs as were trained."""
        return {name: t[:epochs] if name in BY_EPOCH else t for name, t in self.state.items()}

    def load_state_dict(self, state: Mapping[str, Tensor], best: Mapping[str, Tensor]) -> None:
        """Resume from what :meth:`state_dict` gave and the best weights of then."""
        if "best_hits" in state:  # as earlier versions called it, when only the accuracy chose
            state = {**state, "best_score": state["best_hits"]}
        for name, tensor in self.best.items():
            tensor.copy_(best[name])
        for name, tensor in self.state.items():
            if name in BY_EPOCH:  # as far as it goes, and no longer than these runs are trained
                rows = min(len(tensor), int(state["epoch"]))
                tensor[:rows].copy_(state[name][:rows])
            else:
                tensor.copy_(state[name])


# Nodes whose first neighbours are followed over the epochs, and how many of these; nodes that are shown.
_FOLLOWED, _FIRST, _EXAMPLES = 500, 3, 6
# Places of the order that are told apart, and rows and columns of a matrix.
PLACES, _CELLS = 8, 16
# With more edges a look takes long, so the order is looked at only before and after training.
_MOST_EDGES = 2_000_000

Look = Callable[[], Mapping[str, Trace]]


class OrderWatch:
    """How the Node2Seq layers of one network order neighbours, before, while and after it is trained.

    It looks on: nothing that is trained depends on it. The first look is at the untrained network.

    Args:
        look: Gives the trace of each layer now.
        nodes: How many the graph has.
        edges: How many edges.
    """

    def __init__(self, look: Look, nodes: int, edges: int) -> None:
        self._look, self._nodes, self._often = look, nodes, edges <= _MOST_EDGES
        self.followed = torch.arange(0, nodes, -(-nodes // _FOLLOWED))
        self.before = self._first(look())
        self.seen: list[tuple[int, dict[str, list[list[int]]]]] = [(0, self._of_followed(self.before))]
        """The epochs that were looked at, and the first neighbours of the followed nodes in each layer."""

    def after_epoch(self, epoch: int) -> None:
        """Look at the order after epochs 1, 2, 5, 10, 20, 50 and so on."""
        if self._often and str(epoch).rstrip("0") in ("1", "2", "5") and epoch > self.seen[-1][0]:
            self.seen.append((epoch, self._of_followed(self._first(self._look()))))

    def described(self, traces: Mapping[str, Trace], classes: Tensor | None) -> dict[str, dict[str, Any]]:
        """What is known of each layer, by its name, ready for JSON.

        Args:
            traces: Those of the chosen weights.
            classes: Those of all nodes, if classes are predicted.
        """
        last = self._first(traces)
        ends = self._of_followed(last)
        described: dict[str, dict[str, Any]] = {}
        for name, first in last.items():
            then = torch.tensor(ends[name])
            changes = [(epoch, *agreement(torch.tensor(seen[name]), then)) for epoch, seen in self.seen]
            described[name] = {"agreement": changes, "nonlocal": first.nonlocal_shares()}
            if classes is not None:
                before, _ = self.before[name].same_class(classes)
                after, counts = first.same_class(classes)
                described[name]["same_class"] = {"before": before, "after": after, "nodes": counts}
        return described

    def _first(self, traces: Mapping[str, Trace]) -> dict[str, FirstNeighbours]:
        return {name: FirstNeighbours.of(trace, self._nodes, PLACES) for name, trace in traces.items()}

    def _of_followed(self, first: Mapping[str, FirstNeighbours]) -> dict[str, list[list[int]]]:
        return {name: one.node.cpu()[self.followed, :_FIRST].tolist() for name, one in first.items()}


def matrices_of(model: nn.Module) -> dict[str, list[tuple[str, list[list[float]]]]]:
    """The learned matrices of each Node2Seq layer, in blocks where they are large."""
    layers = ((name, part) for name, part in model.named_modules() if isinstance(part, Node2SeqConv))
    return {name: learned_matrices(layer, _CELLS) for name, layer in layers}


def details_of(
    model: nn.Module,
    outputs: Tensor,
    traces: Mapping[str, Trace],
    y: Tensor,
    edge_index: Tensor,
    nodes: Tensor,
    task: Task,
    names: Sequence[Any],
    watch: OrderWatch | None,
) -> dict[str, Any]:
    """What a report shows of a trained network beyond its figures, ready for JSON.

    Args:
        model: The network.
        outputs: What it gives, [N, outputs].
        traces: What its Node2Seq layers do.
        y: The labels of all nodes.
        edge_index: The edges.
        nodes: The nodes to look at.
        task: What is predicted, with calibrated probabilities if it has any.
        names: What nodes are called.
        watch: What was seen before and while it was trained.
    """
    classes = y if isinstance(task, Classification) else None
    details: dict[str, Any] = {"matrices": matrices_of(model)}
    if isinstance(task, Classification):
        degree = torch.bincount(edge_index[1], minlength=y.size(0))
        details |= _accuracies(outputs[nodes].cpu(), y[nodes].cpu(), degree[nodes].cpu(), task)
    for trace in [*traces.values()][:1]:
        first = FirstNeighbours.of(trace, y.size(0), PLACES)
        details["examples"] = _examples(first, outputs, classes, nodes, names)
    if watch is not None:
        details["layers"] = watch.described(traces, classes)
    return details


def _examples(
    first: FirstNeighbours, outputs: Tensor, classes: Tensor | None, nodes: Tensor, names: Sequence[Any]
) -> list[dict[str, Any]]:
    """Some nodes with their first neighbours: as many right predictions as wrong ones, where there are."""
    among = nodes[(first.node[nodes] >= 0).sum(1) >= _FIRST]
    chosen, about = among[:_EXAMPLES], {}
    if classes is not None:
        predicted, half = outputs.argmax(-1), _EXAMPLES // 2
        right = predicted[among] == classes[among]
        chosen = torch.cat([among[right][:half], among[~right][:half]])
        about = {"class": classes, "predicted": predicted}
    return [
        {
            "name": str(names[node]),
            **{key: int(values[node]) for key, values in about.items()},
            "neighbours": [
                {
                    "name": str(names[other]),
                    "class": None if classes is None else int(classes[other]),
                    "score": float(f"{float(first.score[node, place]):.3g}"),
                    "nonlocal": bool(first.is_nonlocal[node, place]),
                }
                for place, other in enumerate(first.node[node].tolist())
                if other >= 0
            ],
        }
        for node in chosen.tolist()
    ]


def _accuracies(outputs: Tensor, y: Tensor, degree: Tensor, task: Classification) -> dict[str, Any]:
    """Right predictions of some nodes by degree and by confidence, as trained and calibrated."""
    right = outputs.argmax(-1) == y
    groups = {
        name: reliability(kind.predict(outputs).max(-1).values.double(), right)
        for name, kind in (("as trained", replace(task, temperature=1.0)), ("calibrated", task))
    }
    return {"by_degree": by_degree(right, degree), "reliability": groups}
