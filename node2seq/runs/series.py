"""Runs that differ in their seeds alone, trained as one program, each in a run folder of its own."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from node2seq.runs.checkpoint import load_checkpoint, save_checkpoint
from node2seq.environment import pick_device
from node2seq.errors import Node2SeqError
from node2seq.runs.graph import Graph, Say, open_again, open_graph
from node2seq.storage.lock import locked
from node2seq.runs.pretrained import complete_options
from node2seq.runs.runner import (
    CHECKPOINT_SECONDS,
    Outcome,
    RunStart,
    Stopped,
    check_start,
    keep,
    lines,
    new_model,
    new_run,
    stop_requests,
)
from node2seq.runs.folder import RunConfig, RunFolder
from node2seq.storage.files import make_folder, remove_leftovers, write_bytes
from node2seq.train.memory import runs_that_fit
from node2seq.train.results import EpochRecord
from node2seq.train.trainer import LOOK_EVERY, Trainer

OnEpoch = Callable[[EpochRecord], None]

_CHECKPOINT = ".checkpoint.safetensors"


def pays(config: RunConfig, home: Path) -> bool:
    """Whether to train a series as one program: on a GPU, and where one was begun that way.

    A processor has no idle units that further runs could use, so there each is rather kept when it is done.
    """
    begun = any(home.glob(f"*{_CHECKPOINT}"))
    return begun or pick_device(config.device).type == "cuda"


def train_series(
    runs: Sequence[tuple[RunConfig, Path]],
    home: str | Path,
    *,
    on_start: Callable[[RunStart], None] | None = None,
    on_epoch: OnEpoch | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    say: Say | None = None,
) -> list[Outcome]:
    """Train runs of one graph and model together; go on where an earlier process stopped or was killed.

    As many as fit into memory are one program, whose state is saved as a whole.

    Args:
        runs: What to train, and the run folder of each. They may differ in their seeds.
        home: The folder of the series, where the state of the program lies meanwhile.
        on_start: Called before the first epoch of each program, with its first run.
        on_epoch: Called now and then, with the means over the runs of a program.
        checkpoint_seconds: Save the state this often.
        say: Called with a line before anything that uses the network.

    Raises:
        Stopped: After Ctrl-C or SIGTERM, with the state saved.
        Node2SeqError: If a run failed; the others are trained and kept all the same.
    """
    home = Path(home)
    device = pick_device(runs[0][0].device)
    with ExitStack() as held:
        graph, folders = _begin(runs, device, held, say)
        series = _Series(home, graph, folders, device, checkpoint_seconds)
        for members, state in series.programs():
            series.train(members, state, on_start, on_epoch)
    if series.problems:
        raise series.problems[0]
    return [Outcome.of(folder) for folder in folders]


def _begin(
    runs: Sequence[tuple[RunConfig, Path]], device: torch.device, held: ExitStack, say: Say | None
) -> tuple[Graph, list[RunFolder]]:
    """Make and hold the folder of each run; read the graph once."""
    graph: Graph | None = None
    folders = []
    for given, path in runs:
        options = complete_options(given.model, given.options, f"options of {given.model}")
        config, folder = replace(given, options=options), RunFolder(path)
        check_start(folder, config, resume=True)
        new = None
        if not folder.exists:
            graph = graph or open_graph(config, say)
            new = new_run(config, graph, device)  # what cannot be trained on leaves no folder behind
        make_folder(folder.path)
        held.enter_context(locked(folder.path))
        check_start(folder, config, resume=True)  # another process may have been here until a moment ago
        remove_leftovers(folder.path)
        if new is not None and not folder.exists:
            folder.write_config(new.config, new.split)
        folders.append(folder)
    return graph or open_again(folders[0], say), folders


class _Series:
    """What the programs of a series have in common."""

    def __init__(
        self,
        home: Path,
        graph: Graph,
        folders: Sequence[RunFolder],
        device: torch.device,
        checkpoint_seconds: float,
    ) -> None:
        self.home, self.graph, self.folders, self.device = home, graph, list(folders), device
        self.checkpoint_seconds = checkpoint_seconds
        own = graph.data
        self.data = Data(x=own.x, edge_index=own.edge_index, y=own.y).to(str(device))
        self.identity = hashlib.sha256(" ".join(f.identity for f in folders).encode()).hexdigest()
        self.checkpoint = home / f"{self.identity[:12]}{_CHECKPOINT}"
        self.problems: list[Node2SeqError] = []

    def programs(self) -> list[tuple[list[RunFolder], Mapping[str, Any] | None]]:
        """The runs of each program that is not finished, and its saved state if there is one."""
        found: list[tuple[list[RunFolder], Mapping[str, Any] | None]] = []
        waiting = [folder for folder in self.folders if not folder.finished]
        if not waiting:
            self.checkpoint.unlink(missing_ok=True)
            return found
        if self.checkpoint.exists():
            state = load_checkpoint(self.checkpoint, self.identity)
            begun = [self.folders[number] for number in state["members"]]
            found.append((begun, state))
            waiting = [folder for folder in waiting if folder not in begun]
        if waiting:
            first = waiting[0]
            most = runs_that_fit(self._model(first), self.data, first.run.settings.views)
            found += [(waiting[i : i + most], None) for i in range(0, len(waiting), most)]
        return found

    def train(
        self,
        members: Sequence[RunFolder],
        state: Mapping[str, Any] | None,
        on_start: Callable[[RunStart], None] | None,
        on_epoch: OnEpoch | None,
    ) -> None:
        """Train one program to its end, and keep its runs."""
        trainer = Trainer(
            [self._model(folder) for folder in members],
            self.data,
            [folder.split for folder in members],
            [folder.run.settings for folder in members],
        )
        if state is not None:
            trainer.load_state_dict(state["program"], state["seconds"])
        first = members[0]
        if on_start is not None:
            texts = tuple(dict.fromkeys(text for run in trainer.runs for text in run.warnings))
            on_start(RunStart(self.home, first.run, self.graph, first.split, trainer.epoch, texts))

        def save() -> None:
            numbers = [self.folders.index(folder) for folder in members]
            state = {"program": trainer.state_dict(), "members": numbers, "seconds": trainer.seconds}
            save_checkpoint(self.checkpoint, state, self.identity)

        saved = time.monotonic()
        with stop_requests() as asked:
            while trainer.active:
                trainer.advance(LOOK_EVERY)
                if asked:
                    save()
                    raise Stopped(self.home, trainer.epoch, asked[0])
                if time.monotonic() - saved >= self.checkpoint_seconds:
                    save()
                    saved = time.monotonic()
                latest = [run.history[-1] for run in trainer.runs if run.history]
                if on_epoch is not None and latest:
                    on_epoch(_mean(latest, trainer.epoch))
            save()  # the runs are kept one after the other: a kill in between must not train them anew
        self._keep(trainer, members)
        self.checkpoint.unlink()

    def _model(self, folder: RunFolder) -> torch.nn.Module:
        return new_model(folder.config["model"], folder.run.seed, self.device)

    def _keep(self, trainer: Trainer, members: Sequence[RunFolder]) -> None:
        trainer.finish()
        results = zip(members, trainer.runs, trainer.results(), strict=True)
        for number, (folder, run, result) in enumerate(results):
            if run.error is not None:
                write_bytes(folder.metrics_file, lines(run.history).encode())
                self.problems.append(run.error)
            elif not folder.finished and result is not None:
                keep(folder, self.graph, result, trainer.model_of(number), trainer.seconds_per_run)


def _mean(latest: Sequence[EpochRecord], epoch: int) -> EpochRecord:
    """The last epochs of runs, as the mean over the runs."""
    names = ("loss", "train_accuracy", "val_loss", "val_accuracy")
    means = [sum(getattr(record, name) for record in latest) / len(latest) for name in names]
    return EpochRecord(epoch, *means)
