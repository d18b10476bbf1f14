"""Programs → rows: reported runs, and settings of a search without a look at test nodes."""

from __future__ import annotations

import gc
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from node2seq import __version__
from node2seq.data import Split, make_split
from node2seq.environment import device_name, make_deterministic, package_versions, same_code
from node2seq.experiments.graphs import read_graph_of, standardized, unpack
from node2seq.experiments.paper import Key, Run
from node2seq.experiments.rows import ResultRow, SearchRow, recipe_to_json
from node2seq.nn.conv.ranks import recorded
from node2seq.recipes.choose import recipe_by_rule, sizes_of_split
from node2seq.search.evaluate import without_test
from node2seq.search.settings import check_seeds
from node2seq.train.inference import evaluate
from node2seq.train.many import OnProgress, Training, TrainingOutcome, prepare_graph, train_many
from node2seq.train.measured import Measured, Metrics
from node2seq.train.settings import Recipe
from node2seq.train.trainer import infer

_TRAINING_CODE = (
    *("data", "environment.py", "experiments/graphs.py", "experiments/trainer.py"),
    *("nn", "ops", "options.py", "train"),
)

#: The line of the share of the most frequent class, which is not trained.
LARGEST_CLASS = ("largest class", "none")


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


@dataclass(frozen=True)
class Program:
    """Runs of one cell that are trained together.

    Args:
        runs: One for each row that it makes.
        seeds: In a search, the splits that each of them is trained on; a reported run names its own.
    """

    runs: tuple[Run, ...]
    seeds: tuple[int, ...] = ()

    @property
    def keys(self) -> list[Any]:
        """Of the rows that it makes."""
        return [run.key for run in self.runs]

    def only(self, keys: Container[Any]) -> Program:
        """The part of it that makes some of its rows."""
        return replace(self, runs=tuple(run for run in self.runs if run.key in keys))


class CellTrainer:
    """Trains programs on one device; reads each graph once and keeps it there.

    Args:
        device: Where to train.
        root: The folder of the data sets; see :func:`node2seq.data.load`.
        call: The call that the rows are made for.
        graphs: The file of the packed graphs; None: the data sets.
        note_swaps: Whether rows with non-local neighbours say how many entries these are.
    """

    def __init__(
        self,
        device: torch.device,
        root: str | Path | None = None,
        call: ReproduceCall | None = None,
        *,
        graphs: Path | None = None,
        note_swaps: bool = False,
    ) -> None:
        make_deterministic(device)
        self.device, self.root, self.call = device, root, call or ReproduceCall()
        self.note_swaps, self._packed = note_swaps, graphs
        self._machine = describe_machine(device)
        self._graphs: dict[tuple[str, str], Data] = {}

    def graph(self, column: str, variant: str = "") -> Data:
        """The graph of a column on the device: with directions if the variant keeps them, or standardised."""
        key = (column, variant if variant in ("directed", "default") else "")
        if key not in self._graphs:
            if variant == "default":
                data = standardized(self.graph(column))
            elif self._packed is not None:
                data = unpack(self._packed, column)
            else:
                data = read_graph_of(column, self.root, directed=variant == "directed")
            self._graphs[key] = data.to(str(self.device))
        return self._graphs[key]

    def make_room(self) -> None:
        """Forget the graphs, and the plans for so many copies of them, where a GPU's memory runs short.

        Several processes share it, so what counts is what is free, not what this one holds.
        """
        if _is_short(self.device):
            self._graphs.clear()
            gc.collect()
            torch.cuda.empty_cache()

    def made(self, row: ResultRow) -> bool:
        """Whether this device, with the same versions and code, made a row: then it makes the same bits."""
        here = all(getattr(row, name) == value for name, value in self._machine.items())
        return here and (row.commit == self.call.commit or same_code(row.commit, _TRAINING_CODE))

    def run(self, program: Program, on_epoch: OnProgress) -> tuple[Sequence[Any], dict[Key, str]]:
        """The rows of a program, and why runs failed that have none; see :meth:`train`."""
        if program.seeds:
            return self.search(program, on_epoch), {}
        return self.train(program.runs, on_epoch)

    def train(
        self, runs: Sequence[Run], on_epoch: OnProgress | None = None
    ) -> tuple[list[ResultRow], dict[Key, str]]:
        """Train runs of one column and variant together, or count the most frequent class.

        Args:
            runs: What to train; a key's seed is that of the split, the initial weights and the dropout.
            on_epoch: Called now and then; what it raises ends the training.

        Returns:
            The rows of those that succeeded, and why the others did not.
        """
        started = time.time()
        ((model, column, variant),) = {(run.key.model, run.key.column, run.key.variant) for run in runs}
        data = self.graph(column, variant)
        splits = [make_split(data, seed=run.key.seed) for run in runs]
        if (model, variant) == LARGEST_CLASS:
            pairs = zip(runs, splits, strict=True)
            return [self._count_largest(run.key, data, split) for run, split in pairs], {}
        trainings = [
            _training(run, data, split, run.key.seed) for run, split in zip(runs, splits, strict=True)
        ]
        keep_models = self.note_swaps or any(map(_has_second_figure, splits))
        outcomes = train_many(data, trainings, device=self.device, on_epoch=on_epoch, keep_models=keep_models)
        figures = {
            run.key: self._figures(data, training, outcome)
            for run, training, outcome in zip(runs, trainings, outcomes, strict=True)
            if outcome.error is None
        }
        shared = {
            "together": [run.key.seed for run in runs],
            "jobs": self.call.jobs,
            **self._provenance((time.time() - started) / len(runs)),
        }
        pairs = zip(runs, outcomes, strict=True)
        failures = {run.key: outcome.error for run, outcome in pairs if outcome.error is not None}
        return [ResultRow(key=key, **own, **shared) for key, own in figures.items()], failures

    def search(self, program: Program, on_epoch: OnProgress) -> list[SearchRow]:
        """Train settings on the splits of a round, whose test nodes are taken out before."""
        runs, seeds = program.runs, program.seeds
        check_seeds(seeds)
        started = time.time()
        data = self.graph(runs[0].key.column, runs[0].key.variant)
        splits = {seed: without_test(make_split(data, seed=seed)) for seed in seeds}
        trainings = [
            _training(run, data, splits[seed], seed, cross_fit=True) for run in runs for seed in seeds
        ]
        outcomes = train_many(data, trainings, device=self.device, on_epoch=on_epoch)
        shared = {
            "seeds": list(seeds),
            "together": len(trainings),
            **self._provenance((time.time() - started) / len(runs)),
        }
        rows = []
        for place, run in enumerate(runs):
            own = outcomes[place * len(seeds) : (place + 1) * len(seeds)]
            results = [outcome.result for outcome in own]
            figures = {
                "validation": [outcome.cross_fitted for outcome in own],
                "epoch": [None if result is None else result.best.epoch for result in results],
                "epochs": [None if result is None else len(result.history) for result in results],
            }
            rows.append(SearchRow(key=run.key, settings=run.settings, **figures, **shared))
        return rows

    def _provenance(self, seconds: float) -> dict[str, Any]:
        """What every row of a program says of its making; ``seconds`` is its share of the time."""
        call, at = self.call, round(time.time() - self.call.started, 3)
        made = {"seconds": round(seconds, 3), "commit": call.commit, "call": call.name, "at": at}
        return {**self._machine, **made}

    def _figures(self, data: Data, training: Training, outcome: TrainingOutcome) -> dict[str, Any]:
        """What came out of a run."""
        result, recipe, split, rest, swapped = outcome.result, training.recipe, training.split, None, None
        assert isinstance(split, Split)
        assert result is not None
        assert result.test is not None
        if _has_second_figure(split):
            assert outcome.model is not None
            graph = prepare_graph(data, recipe, self.device)
            rest = _accuracy(evaluate(outcome.model, graph, split.test_rest))
        if self.note_swaps and recipe.options.get("hops", 1) > 1 and outcome.model is not None:
            swapped = swapped_share(outcome.model, prepare_graph(data, recipe, self.device))
        return {
            "val": _accuracy(result.val),
            "test": _accuracy(result.test),
            "test_nodes": result.test.nodes,
            "test_rest": rest,
            "swapped": swapped,
            "epoch": result.best.epoch,
            "epochs": len(result.history),
            "recipe": recipe_to_json(recipe),
        }

    def _count_largest(self, key: Key, data: Data, split: Split) -> ResultRow:
        assert isinstance(data.y, Tensor)
        y = data.y.cpu()
        largest = torch.bincount(y[split.train]).argmax()
        val, test = (float((y[part] == largest).double().mean()) for part in (split.val, split.test))
        return ResultRow(
            key=key,
            val=val,
            test=test,
            test_nodes=split.test.numel(),
            epoch=0,
            epochs=0,
            recipe=recipe_to_json(Recipe()),
            jobs=self.call.jobs,
            **self._provenance(0.0),
        )


def _training(run: Run, data: Data, split: Split, seed: int, cross_fit: bool = False) -> Training:
    """A run on a split, by the rule for any graph where it has no recipe."""
    recipe = run.recipe or recipe_by_rule(run.key.model, sizes_of_split(data, split))
    return Training(run.key.model, recipe, split, seed, cross_fit=cross_fit)


def swapped_share(model: nn.Module, graph: Data) -> float | None:
    """The share of entries in the sequences of a trained network that are non-local nodes, if it has any."""
    with recorded(model) as calls:
        infer(model, model, graph.x, graph.edge_index)
    first = next(iter(calls.values()), None)
    return None if first is None else round(float(first.trace.is_nonlocal.double().mean()), 6)


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


def _is_short(device: torch.device) -> bool:
    """Whether less than a third of a GPU's memory is free."""
    if device.type != "cuda":
        return False
    free, total = torch.cuda.mem_get_info(device)
    return free < total / 3
