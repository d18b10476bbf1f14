"""Programs → rows: settings of a search without a look at test nodes, and final runs."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch_geometric.data import Data

from node2seq.data import Split, make_split
from node2seq.experiments.cell_trainer import CellTrainer, ReproduceCall
from node2seq.experiments.cells import Key, Run
from node2seq.experiments.declaration import Line, Protocol
from node2seq.experiments.graphs import read_graph_of, standardized, unpack
from node2seq.experiments.plan import recipe_of_setting, weight_of
from node2seq.experiments.rows import ResultRow, recipe_to_json
from node2seq.experiments.search_rows import SearchKey, SearchRow
from node2seq.recipes.choose import recipe_by_rule, sizes_of_split
from node2seq.search.settings import check_seeds
from node2seq.search.space import Settings
from node2seq.train.many import Training, TrainingOutcome, train_many
from node2seq.train.settings import Recipe

#: The line of the share of the most frequent class, which is not trained.
LARGEST_CLASS = ("largest class", "none")


@dataclass(frozen=True)
class SearchProgram:
    """Settings of one cell that are trained as one program.

    Args:
        line: The line.
        column: The column.
        rung: The round, from 1 on.
        members: The number and the values of each setting.
        seeds: The splits of the round.
    """

    line: Line
    column: str
    rung: int
    members: tuple[tuple[int, Settings], ...]
    seeds: tuple[int, ...]

    @property
    def keys(self) -> list[SearchKey]:
        """Of the rows that it makes."""
        of = (self.line.model, self.line.variant, self.column, self.rung)
        return [SearchKey(*of, number) for number, _ in self.members]

    @property
    def weight(self) -> float:
        """About how long it takes beside others on the same graph."""
        runs = len(self.members) * len(self.seeds)
        return runs * weight_of(self.line.model, self.members[0][1])


@dataclass(frozen=True)
class FinalProgram:
    """The final runs of one cell.

    Args:
        model: The line.
        variant: The line.
        column: Where it is trained.
        study: What is changed in the recipe, as rows call it.
        seeds: Of the runs.
        recipe: How they are trained; None: by the rule for any graph, from the training nodes of each split.
    """

    model: str
    variant: str
    column: str
    study: str
    seeds: tuple[int, ...]
    recipe: Recipe | None

    @property
    def keys(self) -> list[Key]:
        """Of the rows that it makes."""
        return [Key(self.model, self.column, self.variant, self.study, seed) for seed in self.seeds]

    @property
    def weight(self) -> float:
        """About how long it takes beside others on the same graph."""
        options = {} if self.recipe is None else {**self.recipe.options, "views": self.recipe.settings.views}
        return len(self.seeds) * weight_of(self.model, options)


class ProtocolTrainer(CellTrainer):
    """Trains the programs of a protocol.

    Args:
        protocol: The protocol.
        device: Where to train.
        call: The call that the rows are made for.
        graphs: The file of the packed graphs; None: the data sets.
        root: The folder of the data sets.
    """

    def __init__(
        self,
        protocol: Protocol,
        device: torch.device,
        call: ReproduceCall | None = None,
        *,
        graphs: Path | None = None,
        root: str | Path | None = None,
    ) -> None:
        super().__init__(device, root, call, note_swaps=True)
        self.protocol, self._packed = protocol, graphs
        self._by_column: dict[tuple[str, bool], Data] = {}

    def graph_for(self, column: str, variant: str) -> Data:
        """The graph of a column on the device; with standardised features for the default network."""
        key = (column, variant == "default")
        if key not in self._by_column:
            if key[1]:
                data = standardized(self.graph_for(column, ""))
            elif self._packed is None:
                data = read_graph_of(column, self.root)
            else:
                data = unpack(self._packed, column)
            self._by_column[key] = data.to(str(self.device))
        return self._by_column[key]

    def make_room(self) -> None:
        """Forget the graphs, and the plans for so many copies of them, where a GPU's memory runs short.

        Several processes share it, so what counts is what is free, not what this one holds.
        """
        if _is_short(self.device):
            self._by_column.clear()
            gc.collect()
            torch.cuda.empty_cache()

    def search(self, program: SearchProgram, on_epoch: Callable[[], None]) -> list[SearchRow]:
        """Train settings on the splits of a round, whose test nodes are taken out before."""
        check_seeds(program.seeds)
        started = time.time()
        data = self.graph_for(program.column, program.line.variant)
        splits = {seed: _without_test(make_split(data, seed=seed)) for seed in program.seeds}
        trainings = [
            Training(
                program.line.model,
                recipe_of_setting(self.protocol, program.line, program.column, settings),
                splits[seed],
                seed,
                cross_fit=True,
            )
            for _, settings in program.members
            for seed in program.seeds
        ]
        outcomes = train_many(data, trainings, device=self.device, on_epoch=lambda _: on_epoch())
        ended, width = time.time(), len(program.seeds)
        share = (ended - started) / len(program.members)
        return [
            self._search_row(
                key, settings, program, outcomes[place * width : (place + 1) * width], share, ended
            )
            for place, (key, (_, settings)) in enumerate(zip(program.keys, program.members, strict=True))
        ]

    def _search_row(
        self,
        key: SearchKey,
        settings: Settings,
        program: SearchProgram,
        outcomes: list[TrainingOutcome],
        seconds: float,
        ended: float,
    ) -> SearchRow:
        results = [outcome.result for outcome in outcomes]
        return SearchRow(
            key=key,
            settings=settings,
            seeds=list(program.seeds),
            validation=[outcome.cross_fitted for outcome in outcomes],
            epoch=[None if result is None else result.best.epoch for result in results],
            epochs=[None if result is None else len(result.history) for result in results],
            seconds=round(seconds, 3),
            together=len(program.members) * len(program.seeds),
            **self._machine,
            commit=self.call.commit,
            call=self.call.name,
            at=round(ended - self.call.started, 3),
        )

    def measure(
        self, program: FinalProgram, on_epoch: Callable[[], None]
    ) -> tuple[list[ResultRow], dict[Key, str]]:
        """Train the final runs of a cell, or count the most frequent class."""
        if (program.model, program.variant) == LARGEST_CLASS:
            return self._count_largest(program), {}
        return self.train([self._run(program, key) for key in program.keys], on_epoch)

    def _run(self, program: FinalProgram, key: Key) -> Run:
        if program.recipe is not None:
            return Run(key, program.recipe)
        data = self.graph_for(program.column, program.variant)
        sizes = sizes_of_split(data, make_split(data, seed=key.seed).train.to(self.device))
        return Run(key, recipe_by_rule(program.model, sizes))

    def _count_largest(self, program: FinalProgram) -> list[ResultRow]:
        data = self.graph_for(program.column, program.variant)
        assert isinstance(data.y, torch.Tensor)
        y, rows = data.y.cpu(), []
        for key in program.keys:
            split = make_split(data, seed=key.seed)
            largest = torch.bincount(y[split.train]).argmax()
            val, test = (float((y[part] == largest).double().mean()) for part in (split.val, split.test))
            rows.append(
                ResultRow(
                    key=key,
                    val=val,
                    test=test,
                    test_nodes=split.test.numel(),
                    epoch=0,
                    epochs=0,
                    recipe=recipe_to_json(Recipe()),
                    seconds=0.0,
                    **self._machine,
                    commit=self.call.commit,
                    call=self.call.name,
                    jobs=self.call.jobs,
                    at=round(time.time() - self.call.started, 3),
                )
            )
        return rows


def _is_short(device: torch.device) -> bool:
    """Whether less than a third of a GPU's memory is free."""
    if device.type != "cuda":
        return False
    free, total = torch.cuda.mem_get_info(device)
    return free < total / 3


def _without_test(split: Split) -> Split:
    none = split.test[:0]
    return replace(split, test=none, test_rest=none)
