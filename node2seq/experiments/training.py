"""Trainings → rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch_geometric.data import Data

from node2seq import __version__
from node2seq.data import Split, load, make_split
from node2seq.environment import device_name, make_deterministic, package_versions
from node2seq.experiments.cells import Key, Run, recipe_to_row
from node2seq.train.inference import evaluate
from node2seq.train.many import Training, TrainingOutcome, prepare_graph, train_many


class Bench:
    """Trains on one device; reads each graph once and keeps it there.

    Args:
        device: Where to train.
        root: The folder of the data sets; see :func:`node2seq.data.load`.
    """

    def __init__(self, device: torch.device, root: str | None = None) -> None:
        make_deterministic(device)
        self.device = device
        self.root = root
        self._graphs: dict[tuple[str, bool], Data] = {}

    def graph(self, column: str, directed: bool = False) -> Data:
        """The graph of a column on the device, its features as they are."""
        key = (column, directed)
        if key not in self._graphs:
            self._graphs[key] = load(column, root=self.root, directed=directed).to(str(self.device))
        return self._graphs[key]

    def train(
        self, runs: Sequence[Run], on_epoch: Callable[[], None] | None = None
    ) -> tuple[list[dict[str, Any]], dict[Key, str]]:
        """Train runs of one column and variant together.

        Args:
            runs: What to train; a key's seed is that of the split, the initial weights and the dropout.
            on_epoch: Called now and then; what it raises ends the training.

        Returns:
            What the rows of those that succeeded say of them, and why the others did not.
        """
        started = time.monotonic()
        ((column, variant),) = {(run.key.column, run.key.variant) for run in runs}
        data = self.graph(column, directed=variant == "directed")
        splits = [make_split(data, seed=run.key.seed) for run in runs]
        outcomes = train_many(
            data,
            [
                Training(r.key.model, r.recipe, split, r.key.seed)
                for r, split in zip(runs, splits, strict=True)
            ],
            device=self.device,
            on_epoch=None if on_epoch is None else lambda _: on_epoch(),
            keep_models=any(map(_has_second_figure, splits)),
        )
        failures = {
            run.key: outcome.error
            for run, outcome in zip(runs, outcomes, strict=True)
            if outcome.error is not None
        }
        figures = [
            self._figures(run, data, split, outcome)
            for run, split, outcome in zip(runs, splits, outcomes, strict=True)
            if run.key not in failures
        ]
        trained = {
            "seconds": round((time.monotonic() - started) / len(runs), 3),
            "together": [run.key.seed for run in runs],
        }
        return [row | trained for row in figures], failures

    def _figures(self, run: Run, data: Data, split: Split, outcome: TrainingOutcome) -> dict[str, Any]:
        result = outcome.result
        assert result is not None
        assert result.test is not None
        row: dict[str, Any] = {
            **run.key._asdict(),
            "val": result.val.accuracy,
            "test": result.test.accuracy,
            "test_nodes": result.test.nodes,
        }
        if _has_second_figure(split):
            assert outcome.model is not None
            graph = prepare_graph(data, run.recipe, self.device)
            row["test_rest"] = evaluate(outcome.model, graph, split.test_rest).accuracy
        return {
            **row,
            "epoch": result.best.epoch,
            "epochs": len(result.history),
            "recipe": recipe_to_row(run.recipe),
        }


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
