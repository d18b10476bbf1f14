"""Train in a run folder, so that nothing that was computed is ever lost."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn
from torch_geometric.data import Data

from node2seq.data import Split
from node2seq.data.graph import carried_by
from node2seq.environment import Processes, describe, memory_of, pick_device, stop_requests, threads_for
from node2seq.errors import Node2SeqError
from node2seq.nn.models import MODELS
from node2seq.nn.models.network import Network
from node2seq.runs.folder import RunConfig, RunFolder, RunResult, check_start
from node2seq.runs.graph import (
    RunGraph,
    Say,
    check_has_edges,
    check_same_for_all,
    check_same_graph,
    open_graph,
    source_as_read,
)
from node2seq.runs.inference import load_model
from node2seq.runs.pretrained import build_model
from node2seq.storage import (
    DiskFullError,
    append_line,
    load_checkpoint,
    locked,
    make_folder,
    remove_leftovers,
    remove_unused,
    save_checkpoint,
)
from node2seq.train.batches import (
    batches_in_words,
    check_batches,
    check_parts,
    check_processes,
    default_batches,
    full_batch_in_words,
    with_fanout,
)
from node2seq.train.inputs import (
    check_divisible,
    check_features,
    check_full_batch,
    check_model_size,
    check_split,
    edge_dim_of,
    full_batch_bytes,
    graph_tensors,
    split_parts,
)
from node2seq.train.minibatch import BatchTrainer, StoreTrainer, batches_for_store
from node2seq.train.progress import (
    EpochRecord,
    FitResult,
    OnBatch,
    OrderWatch,
    details_of,
    matrices_of,
)
from node2seq.train.task import Task, task_for
from node2seq.train.trainer import Trainer


class Stopped(KeyboardInterrupt):
    """Training was asked to stop, and did so after saving its state."""

    def __init__(self, folder: Path, epoch: int, signal_number: int) -> None:
        super().__init__(
            f"Stopped after epoch {epoch}; the state is saved. "
            f"Resume with `node2seq train --resume {folder}`."
        )
        self.folder, self.epoch = folder, epoch
        self.exit_status = 128 + signal_number  # what a shell says of a process ended by that signal


# Work that a kill can cost at most, but for an epoch that takes longer by itself.
CHECKPOINT_SECONDS = 15.0


@dataclass(frozen=True)
class RunStart:
    """What is known when training begins; ``epoch`` is above 0 when it resumes."""

    folder: Path
    config: RunConfig
    graph: RunGraph
    split: Split
    epoch: int
    warnings: tuple[str, ...]
    batches: str | None = None
    """The message about mini-batches: their sizes, and the reason if they were chosen automatically."""


Runs = Sequence[tuple[RunConfig, Path]]
OnStart = Callable[[RunStart], None]
OnEpoch = Callable[[EpochRecord], None]


def train_run(
    config: RunConfig,
    path: str | Path,
    *,
    resume: bool = False,
    on_start: OnStart | None = None,
    on_epoch: OnEpoch | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    say: Say | None = None,
    data: Data | None = None,
    processes: Processes | None = None,
    on_batch: OnBatch | None = None,
) -> RunResult:
    """Train as ``config`` says and keep everything in the folder ``path``.

    Args:
        config: What to train.
        path: The run folder; must be free unless ``resume`` is given.
        resume: Resume exactly where an earlier process stopped or was killed; start if none did; return
            what is there if the run is finished.
        on_start: Called before the first epoch.
        on_epoch: Called after every epoch.
        checkpoint_seconds: Save the state this often.
        say: Called with a line before anything that uses the network.
        data: The graph that the source names, if it was read already.
        processes: Those that train it together, on mini-batches. The first one writes the folder; the others
            need not see it. All have to be given the same settings and the same graph.
        on_batch: Called after every mini-batch.

    Raises:
        Stopped: After Ctrl-C or SIGTERM, with the state saved.
    """
    processes = processes or Processes()
    with ExitStack() as held:
        with processes.reporting():
            told = (on_start, on_epoch, checkpoint_seconds)
            session = Session(Path(path), config.device, *told, processes, on_batch)
            session.open([(config, Path(path))], held, resume, say, data)
        return session.train()[0]


class Session:
    """A run that this process trains, in a folder that it holds; several in ``runs.series.Series``.

    Args:
        home: Where to resume: the folder of the run.
        device: Where to train; the others are those of :func:`train_run`.
    """

    alone: ClassVar[bool] = True
    """Whether there is one run, whose every epoch is recorded as it ends."""
    epochs_at_once: ClassVar[int] = 1

    def __init__(
        self,
        home: Path,
        device: str,
        on_start: OnStart | None,
        on_epoch: OnEpoch | None,
        checkpoint_seconds: float,
        processes: Processes | None = None,
        on_batch: OnBatch | None = None,
    ) -> None:
        self.processes, self.on_batch = processes or Processes(), on_batch
        self.home, self.device = home, self.processes.local_device(pick_device(device))
        self.on_start, self.on_epoch, self.checkpoint_seconds = on_start, on_epoch, checkpoint_seconds
        self.folders: list[RunFolder] = []
        self._new_models: dict[Path, nn.Module] = {}
        self._new_folders: list[Path] = []
        self._graph: RunGraph | None = None
        self._why_batches = self._too_large = ""
        self._watch: OrderWatch | None = None

    def open(self, runs: Runs, held: ExitStack, resume: bool, say: Say | None, data: Data | None) -> None:
        """Make and hold the folder of each run; read the graph once, if there is anything to train."""

        def open_folders() -> tuple[list[RunFolder], bool]:
            self._open_folders(runs, held, resume, say, data)
            for folder in self.folders if self.processes.size > 1 else []:
                folder.read()
            return self.folders, self._graph is not None

        try:
            self.folders, is_trained = self.processes.share(open_folders)
            if not self.processes.is_first and is_trained:
                self._open_own_graph(runs[0][0], held, say, data)
            self.processes.share(lambda: None)  # wait until all have read it
        except (Node2SeqError, KeyboardInterrupt):
            self._leave_nothing()
            raise

    def _leave_nothing(self) -> None:
        """Remove the folders that were made here, of runs of which no epoch is trained."""
        for path in self._new_folders:
            remove_unused(path, ["config.json", "split.json"])

    def _open_own_graph(self, config: RunConfig, held: ExitStack, say: Say | None, data: Data | None) -> None:
        """Read the graph in a process that does not write: it has to be that of the first one."""
        folder = self.folders[0]
        source = source_as_read(folder) if data is None else config.source
        self._open_graph(replace(config, source=source), held, say, data)
        check_same_for_all(folder, self.graph, source, config)

    def _open_folders(
        self, runs: Runs, held: ExitStack, resume: bool, say: Say | None, data: Data | None
    ) -> None:
        for config, path in runs:
            folder = RunFolder(path)
            check_start(folder, config, resume)
            new = None
            if not folder.exists:
                self._open_graph(config, held, say, data)
                new = self._new_run(config)  # what cannot be trained on leaves no folder behind
                config = new[0]
            make_folder(folder.path)
            held.enter_context(locked(folder.path))
            check_start(folder, config, resume)  # another process may have been here until a moment ago
            remove_leftovers(folder.path)
            if new is not None and not folder.exists:
                _, split, self._new_models[folder.path], described = new
                self._new_folders.append(folder.path)
                folder.write_config(config, described, split)
            elif folder.failure is not None:
                pass  # said in the end, when what can be trained is trained
            elif folder.finished:
                load_model(folder, "cpu")  # what cannot be used is not finished: say so
            else:
                self._open_graph(replace(folder.run, source=source_as_read(folder)), held, say, data)
                check_same_graph(folder, self.graph)
            self.folders.append(folder)

    def _open_graph(self, config: RunConfig, held: ExitStack, say: Say | None, data: Data | None) -> None:
        """Read the graph of all runs, unless it was read for an earlier one."""
        if self._graph is None:
            self._graph = open_graph(config.source, config.row_normalize, say, data)
            held.enter_context(threads_for(self._graph.data))

    def _new_run(self, config: RunConfig) -> tuple[RunConfig, Split, nn.Module, dict[str, Any]]:
        """A run that can be trained, with its split, its untrained model and what config.json will say."""
        graph = self.graph
        check_has_edges(graph, config.source)
        split = graph.split(config.split_rule, config.seed)
        assert isinstance(graph.data.y, torch.Tensor)
        known = (graph.data.get("schema") or {}).get("target")
        task = task_for(graph.data.y, split.train, config.settings.loss, known)
        task.check(config.settings)
        # A class may have no node here, yet a name.
        outputs = len(graph.class_names) or task.outputs(graph.data.y)
        channels = graph.data.num_node_features, outputs
        edge_dim, network = edge_dim_of(graph.data), MODELS[config.model]
        nodes = int(graph.data.num_nodes or 0)
        check_model_size(network, config.options, channels, edge_dim, nodes, self.device)
        torch.manual_seed(config.seed)
        model = network.with_options(*channels, config.options, edge_dim).to(self.device)
        if graph.store is not None:
            config = replace(config, batches=batches_for_store(model, config.batches))
        elif config.batches is not None:
            config = replace(config, batches=with_fanout(config.batches, model, graph.data.num_edges))
        elif self.alone:
            config = self._with_batches_if_needed(config, model)
        if config.batches is None:
            check_divisible(self.processes)
            check_full_batch(model, config.options, nodes, self.device)
        else:
            check_batches(model, config.batches, carried_by(graph.data))
            check_processes(model, self.processes)
        if graph.store is None:  # what is stored was checked when it was converted
            x, _, y = graph_tensors(model, graph.data, device=torch.device("cpu"))
            if not self._new_models:  # the first: all runs have the same graph
                check_features(x)
            check_split(split_parts(split, y.device), y)
        described = {
            **config.described(*channels, edge_dim),
            "graph": graph.describe(config.source, task),
            "environment": {**describe(self.device), **self.processes.described},
        }
        return config, split, model, described

    def _with_batches_if_needed(self, config: RunConfig, model: Network) -> RunConfig:
        """Mini-batches for a run whose full batch would not fit into memory, if its network can take them."""
        needed = full_batch_bytes(model, self.graph.data, config.settings.views)
        most = memory_of(self.device)
        if most is None or needed <= most:
            return config
        words = full_batch_in_words(needed, most)
        try:
            check_parts(model, carried_by(self.graph.data))
        except Node2SeqError as error:
            self._too_large = f"It may not fit into memory: {words}. {error}"
            return config
        self._why_batches = words
        return replace(config, batches=default_batches(model))

    @property
    def graph(self) -> RunGraph:
        """What the runs are trained on."""
        assert self._graph is not None
        return self._graph

    @cached_property
    def data(self) -> Data:
        """The same on the device."""
        return self.graph.on(self.device)

    @cached_property
    def identity(self) -> str:
        """A digest of what decides the outcome."""
        return self.folders[0].identity

    @cached_property
    def checkpoint(self) -> Path:
        """Where the state lies."""
        return self.folders[0].checkpoint_file

    def train(self) -> list[RunResult]:
        """Train what is not finished, and return what all runs reached."""
        try:
            return self._train()
        except KeyboardInterrupt as stop:
            if self.alone and not isinstance(stop, Stopped):
                self._leave_nothing()
            raise
        except DiskFullError as error:
            cure = f"Free some space, then resume with `node2seq train --resume {self.home}`"
            raise Node2SeqError(error.given, error.reason, cure) from error

    def _train(self) -> list[RunResult]:
        errors = self.processes.share(
            lambda: [folder.failure for folder in self.folders if folder.failure is not None]
        )
        for members, state in self.processes.share(self._groups):
            trainer = self._trainer(members, state)
            self._advance(trainer, members)
            trainer.finish()
            # Each of several models is measured by itself, as it will be when it is loaded.
            models = [trainer.model_of(i) for i in range(len(members))]
            fitted = trainer.results(None if self.alone else models, with_rest=True)
            errors += [run.error for run in trainer.runs if run.error is not None]
            if self.processes.is_first:
                self._write(trainer, members, fitted, models)
        if errors:
            raise self.processes.known(errors[0])
        return self.processes.share(lambda: [folder.result for folder in self.folders])

    def _write(
        self,
        trainer: Trainer,
        members: Sequence[RunFolder],
        fitted: Sequence[FitResult | None],
        models: Sequence[nn.Module],
    ) -> None:
        """Write what became of runs."""
        for folder, run, result, model in zip(members, trainer.runs, fitted, models, strict=True):
            if run.error is not None:
                folder.write_epochs(run.history)
                folder.write_failure(run.error)
            elif not folder.finished:
                assert result is not None
                result = replace(result, warnings=(*self.graph.report.warnings, *result.warnings))
                details = self._details(trainer, model, folder, result.task)
                folder.write_result(result, model, trainer.seconds_per_run, details)
        if not self.alone:
            self.checkpoint.unlink()

    def _details(self, trainer: Trainer, model: nn.Module, folder: RunFolder, task: Task) -> dict[str, Any]:
        """What the report shows beyond the figures; on mini-batches, the learned matrices alone."""
        if folder.run.batches is not None:
            return {"matrices": matrices_of(model)}
        split, names = folder.split, self.graph.node_ids
        nodes = (split.test if split.test.numel() else split.val).to(trainer.y.device)
        graph = trainer.y, trainer.edge_index
        return details_of(model, *trainer.traces(model), *graph, nodes, task, names, self._watch)

    def _groups(self) -> list[tuple[list[RunFolder], Mapping[str, Any] | None]]:
        """The runs to train at once that are not finished, and their saved state if there is one."""
        found: list[tuple[list[RunFolder], Mapping[str, Any] | None]] = []
        waiting = [folder for folder in self.folders if not folder.finished and folder.failure is None]
        if not waiting:
            self.checkpoint.unlink(missing_ok=True)
            return found
        if self.checkpoint.exists():
            state = load_checkpoint(self.checkpoint, self.identity)
            begun = [self.folders[number] for number in state.get("members", [0])]
            found.append((begun, state))
            waiting = [folder for folder in waiting if folder not in begun]
        most = self._most_at_once(waiting)
        return found + [(waiting[i : i + most], None) for i in range(0, len(waiting), most)]

    def _most_at_once(self, _waiting: Sequence[RunFolder]) -> int:
        """How many runs to train at once."""
        return 1

    def _model(self, folder: RunFolder) -> nn.Module:
        """The untrained model of a run."""
        if folder.path not in self._new_models:
            torch.manual_seed(folder.run.seed)
            model = build_model(folder.config["model"], folder.config_file)
            self._new_models[folder.path] = model.to(self.device)
        return self._new_models[folder.path]

    def _trainer(self, members: Sequence[RunFolder], state: Mapping[str, Any] | None) -> Trainer:
        """Set up the training of some runs where they stand."""
        models = [self._model(folder) for folder in members]
        for folder in members:
            del self._new_models[folder.path]  # stacked, it is a copy
        batches = members[0].run.batches
        if batches is None:
            check_divisible(self.processes)
            trainer = Trainer(
                models[0] if self.alone else models,
                self.data,
                [folder.split for folder in members],
                [folder.run.settings for folder in members],
            )
        else:
            run = members[0].run
            own = (members[0].split, run.settings, batches, run.seed, self.processes)
            if self.graph.store is None:
                trainer = BatchTrainer(models[0], self.graph.data, *own)
            else:
                normal = run.row_normalize
                trainer = StoreTrainer(models[0], self.graph.store, *own, row_normalize=normal)
            trainer.on_batch = self.on_batch
        self._watch = None
        if self.alone and batches is None:  # the model is untrained until its state is loaded
            size = trainer.y.size(0), trainer.edge_index.size(1)
            self._watch = OrderWatch(lambda: trainer.traces()[1], *size)
            self._watch.seen += (state or {}).get("orders", [])
        if state is not None:
            trainer.load_state_dict(state["fitter" if self.alone else "program"], state["seconds"])
        first = members[0]
        if self.alone and self.processes.is_first and first.metrics_file.exists():
            # A killed process may have written more epochs than its last checkpoint knows, or half a line.
            first.write_epochs(trainer.runs[0].history)
        if self.on_start is not None:
            of_runs = [text for run in trainer.runs for text in run.warnings]
            texts = tuple(
                dict.fromkeys(filter(None, [*self.graph.report.warnings, *of_runs, self._too_large]))
            )
            rates = trainer.runs[0].settings.lr, first.run.settings.lr
            in_words = None
            if isinstance(trainer, BatchTrainer):
                told = self.processes, self._why_batches, trainer.drawn_on
                in_words = batches and batches_in_words(batches, rates, *told)
            known = (self.home, first.run, self.graph, first.split, trainer.epoch, tuple(texts))
            self.on_start(RunStart(*known, in_words))
        return trainer

    def _advance(self, trainer: Trainer, members: Sequence[RunFolder]) -> None:
        """Train to the end, saving the state now and then."""
        saved = time.monotonic()
        with stop_requests() as asked:
            while trainer.active:
                trainer.advance(self.epochs_at_once)
                if self._watch is not None:
                    self._watch.after_epoch(trainer.epoch)
                latest = [run.history[-1] for run in trainer.runs if run.error is None]
                if self.alone and self.processes.is_first:
                    for record in latest:
                        append_line(members[0].metrics_file, record.to_dict())
                if self.processes.any(bool(asked)):
                    self._save(trainer, members)
                    raise Stopped(self.home, trainer.epoch, asked[0] if asked else signal.SIGTERM)
                if time.monotonic() - saved >= self.checkpoint_seconds:
                    self._save(trainer, members)
                    saved = time.monotonic()
                if self.on_epoch is not None and latest:
                    self.on_epoch(self._told(latest, trainer.epoch))
            # Runs are kept one by one: after a kill in between, they must not be trained again.
            if not self.alone:
                self._save(trainer, members)

    def _told(self, latest: Sequence[EpochRecord], _epoch: int) -> EpochRecord:
        """What to tell of the last epochs of runs."""
        return latest[0]

    def _save(self, trainer: Trainer, members: Sequence[RunFolder]) -> None:
        if not self.processes.is_first:  # all have the same state
            return
        state = {**self._state(trainer, members), "seconds": trainer.seconds}
        save_checkpoint(self.checkpoint, state, self.identity)

    def _state(self, trainer: Trainer, _members: Sequence[RunFolder]) -> dict[str, Any]:
        """What a checkpoint holds."""
        orders = {} if self._watch is None else {"orders": self._watch.seen[1:]}
        return {"fitter": trainer.state_dict(), **orders}
