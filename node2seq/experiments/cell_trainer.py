"""Trainings → rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from node2seq import __version__
from node2seq.data import Split, load, make_split
from node2seq.environment import device_name, make_deterministic, package_versions, same_code
from node2seq.experiments.cells import Key, Run
from node2seq.experiments.rows import ResultRow, recipe_to_json
from node2seq.nn.conv.node2seq import Node2SeqConv
from node2seq.train.inference import evaluate
from node2seq.train.many import Training, TrainingOutcome, prepare_graph, train_many
from node2seq.train.measured import Measured, Metrics
from node2seq.train.trainer import infer

_TRAINING_CODE = ("data", "environment.py", "experiments/cell_trainer.py", "nn", "ops", "options.py", "train")


@dataclass(frozen=True)
class ReproduceCall:
    """One call of ``reproduce``: what its rows say of it.

    Args:
        name: Tells its rows from those of other calls.
        started: When it began, in seconds since 1970.
        jobs: How many processes it has.
        commit: The commit of the code, where it is known.
    """

    name: str = ""
    started: float = 0.0
    jobs: int = 1
    commit: str | None = None


class CellTrainer:
    """Trains runs on one device; reads each graph once and keeps it there.

    Args:
        device: Where to train.
        root: The folder of the data sets; see :func:`node2seq.data.load`.
        call: The call that the rows are made for.
        note_swaps: Whether rows with non-local neighbours say how many entries these are.
    """

    def __init__(
        self,
        device: torch.device,
        root: str | Path | None = None,
        call: ReproduceCall | None = None,
        *,
        note_swaps: bool = False,
    ) -> None:
        make_deterministic(device)
        self.device, self.root, self.call = device, root, call or ReproduceCall()
        self.note_swaps = note_swaps
        self._machine = describe_machine(device)
        self._graphs: dict[tuple[str, bool], Data] = {}

    def graph(self, column: str, directed: bool = False) -> Data:
        """The graph of a column on the device, its features as they are."""
        key = (column, directed)
        if key not in self._graphs:
            self._graphs[key] = load(column, root=self.root, directed=directed).to(str(self.device))
        return self._graphs[key]

    def made(self, row: ResultRow) -> bool:
        """Whether this device, with the same versions and code, made a row: then it makes the same bits."""
        here = all(getattr(row, name) == value for name, value in self._machine.items())
        return here and (row.commit == self.call.commit or same_code(row.commit, _TRAINING_CODE))

    def train(
        self, runs: Sequence[Run], on_epoch: Callable[[], None] | None = None
    ) -> tuple[list[ResultRow], dict[Key, str]]:
        """Train runs of one column and variant together.

        Args:
            runs: What to train; a key's seed is that of the split, the initial weights and the dropout.
            on_epoch: Called now and then; what it raises ends the training.

        Returns:
            The rows of those that succeeded, and why the others did not.
        """
        started = time.time()
        ((column, variant),) = {(run.key.column, run.key.variant) for run in runs}
        data = self.graph_for(column, variant)
        splits = [make_split(data, seed=run.key.seed) for run in runs]
        outcomes = train_many(
            data,
            [
                Training(r.key.model, r.recipe, split, r.key.seed)
                for r, split in zip(runs, splits, strict=True)
            ],
            device=self.device,
            on_epoch=None if on_epoch is None else lambda _: on_epoch(),
            keep_models=self.note_swaps or any(map(_has_second_figure, splits)),
        )
        trained = list(zip(runs, splits, outcomes, strict=True))
        failures = {run.key: outcome.error for run, _, outcome in trained if outcome.error is not None}
        rest = {
            run.key: self._rest_accuracy(run, data, split, outcome)
            for run, split, outcome in trained
            if run.key not in failures and _has_second_figure(split)
        }
        ended = time.time()
        shared = {
            "seconds": round((ended - started) / len(runs), 3),
            "together": [run.key.seed for run in runs],
            **self._machine,
            "commit": self.call.commit,
            "call": self.call.name,
            "jobs": self.call.jobs,
            "at": round(ended - self.call.started, 3),
        }
        rows = [
            _row(run, outcome, rest.get(run.key), {**shared, "swapped": self._swapped(run, data, outcome)})
            for run, _, outcome in trained
            if run.key not in failures
        ]
        return rows, failures

    def graph_for(self, column: str, variant: str) -> Data:
        """The graph that a variant is trained on."""
        return self.graph(column, directed=variant == "directed")

    def _swapped(self, run: Run, data: Data, outcome: TrainingOutcome) -> float | None:
        if not self.note_swaps or run.recipe.options.get("hops", 1) == 1 or outcome.model is None:
            return None
        return swapped_share(outcome.model, prepare_graph(data, run.recipe, self.device))

    def _rest_accuracy(self, run: Run, data: Data, split: Split, outcome: TrainingOutcome) -> float:
        assert outcome.model is not None
        graph = prepare_graph(data, run.recipe, self.device)
        return _accuracy(evaluate(outcome.model, graph, split.test_rest))


def _row(run: Run, outcome: TrainingOutcome, rest: float | None, shared: Mapping[str, Any]) -> ResultRow:
    result = outcome.result
    assert result is not None
    assert result.test is not None
    return ResultRow(
        key=run.key,
        val=_accuracy(result.val),
        test=_accuracy(result.test),
        test_nodes=result.test.nodes,
        test_rest=rest,
        epoch=result.best.epoch,
        epochs=len(result.history),
        recipe=recipe_to_json(run.recipe),
        **shared,
    )


def swapped_share(model: nn.Module, graph: Data) -> float | None:
    """The share of entries in the sequences of a trained network that are non-local nodes, if it has any."""
    conv = next((module for module in model.modules() if isinstance(module, Node2SeqConv)), None)
    if conv is None:
        return None
    inputs: list[Tensor] = []
    hook = conv.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    try:
        infer(model, model, graph.x, graph.edge_index)
    finally:
        hook.remove()
    with torch.no_grad():
        _, trace = conv(inputs[0], graph.edge_index, return_trace=True)
    return round(float(trace.is_nonlocal.double().mean()), 6)


def _accuracy(measured: Measured) -> float:
    assert isinstance(measured, Metrics)  # every table of the paper is of classes
    return measured.accuracy


def _has_second_figure(split: Split) -> bool:
    """Whether the split is a fixed one: it counts 1000 test nodes, the paper's text all that are left."""
    return split.test_rest.numel() != split.test.numel()


def describe_machine(device: torch.device) -> dict[str, Any]:
    """The device and the versions that a row was made with: equal ones are expected to give equal bits."""
    name = device_name(device)
    versions = package_versions(("node2seq", "torch", "torch_geometric", "numpy"))
    # The version of torch with its build, which decides about kernels.
    versions |= {"node2seq": __version__, "torch": torch.__version__}
    return {"device": name if device.type == "cuda" else f"cpu: {name}", "versions": versions}
