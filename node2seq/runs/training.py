"""Train in run folders, one run or a series together, so that nothing that was computed is ever lost."""

from __future__ import annotations

import copy
import hashlib
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from node2seq.data import Split
from node2seq.environment import describe, memory_of, pick_device, stop_requests, threads_for
from node2seq.errors import Node2SeqError
from node2seq.nn.models.network import Network
from node2seq.nn.models.registry import MODELS
from node2seq.runs.checkpoint import load_checkpoint, save_checkpoint
from node2seq.runs.folder import RunConfig, RunFolder, RunResult, check_start
from node2seq.runs.graph import (
    RunGraph,
    Say,
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
    locked,
    make_folder,
    remove_leftovers,
    remove_unused,
)
from node2seq.train.batches import check_batches, check_parts, check_processes, default_batches
from node2seq.train.inputs import (
    carried_by,
    check_features,
    check_full_batch,
    check_model_size,
    check_split,
    edge_dim_of,
    full_batch_bytes,
    graph_tensors,
    runs_that_fit,
    split_parts,
)
from node2seq.train.minibatch import BatchTrainer
from node2seq.train.processes import Processes, check_divisible
from node2seq.train.progress import (
    EpochRecord,
    FitResult,
    OnBatch,
    OrderWatch,
    details_of,
    matrices_of,
)
from node2seq.train.settings import BatchSettings
from node2seq.train.stored import StoreTrainer, batches_for_store
from node2seq.train.task import Task, task_for
from node2seq.train.trainer import LOOK_EVERY, Trainer


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
_SERIES_CHECKPOINT = ".checkpoint.safetensors"


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
    """What to say of mini-batches: their sizes, and why, if nobody asked for them."""


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
            session = _Session(Path(path), config.device, True, *told, processes, on_batch)
            session.open([(config, Path(path))], held, resume, say, data)
        return session.train()[0]


def train_series(
    runs: Sequence[tuple[RunConfig, Path]],
    home: str | Path,
    *,
    on_start: OnStart | None = None,
    on_epoch: OnEpoch | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    say: Say | None = None,
    data: Data | None = None,
) -> list[RunResult]:
    """Train runs of one graph and model together; resume where an earlier process stopped or was killed.

    As many as fit into memory are trained at once, and their state is saved as a whole. Each ends as it does
    alone up to rounding; resumed, with the same bits.

    Args:
        runs: What to train, and the run folder of each. They may differ in their seeds.
        home: The folder of the series, where the state lies while it is trained.
        on_start: Called before the first epoch of runs that are trained at once, with the first of them.
        on_epoch: Called every few epochs, with the means over these runs.
        checkpoint_seconds: Save the state this often.
        say: Called with a line before anything that uses the network.
        data: The graph that the source names, if it was read already.

    Raises:
        Stopped: After Ctrl-C or SIGTERM, with the state saved.
        Node2SeqError: If a run failed; the others are trained and kept all the same.
    """
    with ExitStack() as held:
        device = runs[0][0].device
        session = _Session(Path(home), device, False, on_start, on_epoch, checkpoint_seconds)
        session.open(runs, held, True, say, data)
        return session.train()


def trains_together(config: RunConfig, home: Path) -> bool:
    """Whether to train a series at once: on a GPU, and where one was begun that way.

    A processor has no idle units that further runs could use, so there each run is better finished before
    the next one starts.
    """
    begun = any(home.glob(f"*{_SERIES_CHECKPOINT}"))
    return begun or (config.batches is None and pick_device(config.device).type == "cuda")


@dataclass(frozen=True)
class _NewRun:
    """A run with its split and its untrained model, and what config.json will say."""

    config: RunConfig
    split: Split
    model: nn.Module
    described: dict[str, Any]


class _Session:
    """Runs of one graph that this process trains, in folders that it holds.

    Args:
        home: Where to resume: the folder of the only run, or that of the series.
        device: Where to train.
        alone: Whether there is one run, whose every epoch is recorded as it ends. Several are looked at now
            and then, because a look makes the host wait for the device.
        on_start: See :func:`train_series`.
        on_epoch: See :func:`train_series`.
        checkpoint_seconds: See :func:`train_series`.
        processes: See :func:`train_run`.
        on_batch: See :func:`train_run`.
    """

    def __init__(
        self,
        home: Path,
        device: str,
        alone: bool,
        on_start: OnStart | None,
        on_epoch: OnEpoch | None,
        checkpoint_seconds: float,
        processes: Processes | None = None,
        on_batch: OnBatch | None = None,
    ) -> None:
        self.processes, self.on_batch = processes or Processes(), on_batch
        self.home, self.device, self.alone = home, self.processes.local_device(pick_device(device)), alone
        self.on_start, self.on_epoch, self.checkpoint_seconds = on_start, on_epoch, checkpoint_seconds
        self.folders: list[RunFolder] = []
        self._new_models: dict[Path, nn.Module] = {}
        self._graph: RunGraph | None = None
        self._why_batches = self._too_large = ""
        self._watch: OrderWatch | None = None

    def open(
        self,
        runs: Sequence[tuple[RunConfig, Path]],
        held: ExitStack,
        resume: bool,
        say: Say | None,
        data: Data | None,
    ) -> None:
        """Make and hold the folder of each run; read the graph once, if there is anything to train."""

        def open_folders() -> tuple[list[RunFolder], bool]:
            self._open_folders(runs, held, resume, say, data)
            for folder in self.folders if self.processes.size > 1 else []:
                folder.read()
            return self.folders, self._graph is not None

        self.folders, is_trained = self.processes.share(open_folders)
        try:
            if not self.processes.is_first and is_trained:
                self._open_own_graph(runs[0][0], held, say, data)
            self.processes.share(lambda: None)  # wait until all have read it
        except Node2SeqError:
            for path in self._new_models:  # the run has not begun, so nothing is left of it
                remove_unused(path, ["config.json", "split.json"])
            raise

    def _open_own_graph(self, config: RunConfig, held: ExitStack, say: Say | None, data: Data | None) -> None:
        """Read the graph in a process that does not write: it has to be that of the first one."""
        folder = self.folders[0]
        source = source_as_read(folder) if data is None else config.source
        self._open_graph(replace(config, source=source), held, say, data)
        check_same_for_all(folder, self.graph, source)
        if changed := folder.run.differences(config):
            raise Node2SeqError(
                f"other settings than those of rank 0 ({', '.join(changed)})",
                "all processes train the same run",
                "Start them with the same command",
            )

    def _open_folders(
        self,
        runs: Sequence[tuple[RunConfig, Path]],
        held: ExitStack,
        resume: bool,
        say: Say | None,
        data: Data | None,
    ) -> None:
        for config, path in runs:
            folder = RunFolder(path)
            check_start(folder, config, resume)
            new = None
            if not folder.exists:
                self._open_graph(config, held, say, data)
                new = self._new_run(config)  # what cannot be trained on leaves no folder behind
                config = new.config
            make_folder(folder.path)
            held.enter_context(locked(folder.path))
            check_start(folder, config, resume)  # another process may have been here until a moment ago
            remove_leftovers(folder.path)
            if new is not None and not folder.exists:
                folder.write_config(config, new.described, new.split)
                self._new_models[folder.path] = new.model
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

    def _new_run(self, config: RunConfig) -> _NewRun:
        """A run that can be trained."""
        graph = self.graph
        if graph.num_edges == 0:
            raise Node2SeqError(
                f"the graph {config.source.title}",
                "it has no edges between different nodes",
                "Give some, or train a model for tables instead",
            )
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
        if config.batches is None and graph.store is not None:
            config = replace(config, batches=batches_for_store(model))
        elif config.batches is None and self.alone:
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
        run = config.as_dict()
        # Name and options stand under "model", where anybody can build the model from; not twice.
        name, options = run.pop("model"), run.pop("options")
        described = {
            "model": {
                "name": name,
                "in_channels": channels[0],
                "out_channels": channels[1],
                **({} if edge_dim is None else {"edge_dim": edge_dim}),
                "options": options,
            },
            "run": run,
            "graph": _with_target(graph.describe(config.source), task),
            "environment": {**describe(self.device), **self._launched},
        }
        return _NewRun(config, split, model, described)

    @property
    def _launched(self) -> dict[str, Any]:
        """How many processes there are, if several."""
        own = self.processes
        draw = {"draw": "own"} if own.draws_own else {}
        return {"processes": own.size, **draw} if own.size > 1 else {}

    def _with_batches_if_needed(self, config: RunConfig, model: Network) -> RunConfig:
        """Mini-batches for a run whose full batch would not fit into memory, if its network can take them."""
        needed = full_batch_bytes(model, self.graph.data, config.settings.views)
        most = memory_of(self.device)
        if most is None or needed <= most:
            return config
        words = f"the full batch would take about {_gib(needed)}, and there are {_gib(most)}"
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
        own = self.graph.data
        graph = Data(x=own.x, edge_index=own.edge_index, y=own.y, **carried_by(own))
        return graph.to(str(self.device))

    @cached_property
    def identity(self) -> str:
        """A digest of what decides the outcome of all runs."""
        if self.alone:
            return self.folders[0].identity
        return hashlib.sha256(" ".join(folder.identity for folder in self.folders).encode()).hexdigest()

    @cached_property
    def checkpoint(self) -> Path:
        """Where the state lies."""
        if self.alone:
            return self.folders[0].checkpoint_file
        return self.home / f"{self.identity[:12]}{_SERIES_CHECKPOINT}"

    def train(self) -> list[RunResult]:
        """Train what is not finished, and return what all runs reached."""
        try:
            return self._train()
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
                result = replace(result, warnings=(*self.graph.warnings, *result.warnings))
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
        most = 1
        if len(waiting) > 1:
            first = copy.deepcopy(self._model(waiting[0]))
            most = runs_that_fit(first, self.data, waiting[0].run.settings.views)
        return found + [(waiting[i : i + most], None) for i in range(0, len(waiting), most)]

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
        if self.alone and self.processes.is_first:
            # A killed process may have written more epochs than its last checkpoint knows, or half a line.
            first.write_epochs(trainer.runs[0].history)
        if self.on_start is not None:
            of_runs = [text for run in trainer.runs for text in run.warnings]
            texts = tuple(dict.fromkeys(filter(None, [*self.graph.warnings, *of_runs, self._too_large])))
            known = (self.home, first.run, self.graph, first.split, trainer.epoch, texts)
            self.on_start(RunStart(*known, self._batches_in_words(batches)))
        return trainer

    def _batches_in_words(self, batches: BatchSettings | None) -> str | None:
        if batches is None:
            return None
        fanout = ", ".join("all" if number < 0 else str(number) for number in batches.fanout)
        text = f"mini-batches of {batches.batch_size} nodes, neighbours by hop: {fanout}"
        if self.processes.size > 1:
            text += f", divided among {self.processes.size} processes"
        return f"{text} ({self._why_batches})" if self._why_batches else text

    def _advance(self, trainer: Trainer, members: Sequence[RunFolder]) -> None:
        """Train to the end, saving the state now and then."""
        saved = time.monotonic()
        with stop_requests() as asked:
            while trainer.active:
                trainer.advance(1 if self.alone else LOOK_EVERY)
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
                    self.on_epoch(_mean(latest, trainer.epoch))
            if (
                not self.alone
            ):  # runs are kept one after the other: a kill in between must not train them anew
                self._save(trainer, members)

    def _save(self, trainer: Trainer, members: Sequence[RunFolder]) -> None:
        if not self.processes.is_first:  # all have the same state
            return
        if self.alone:
            state: dict[str, Any] = {"fitter": trainer.state_dict()}
            if self._watch is not None:
                state["orders"] = self._watch.seen[1:]
        else:
            numbers = [self.folders.index(folder) for folder in members]
            state = {"program": trainer.state_dict(), "members": numbers}
        save_checkpoint(self.checkpoint, {**state, "seconds": trainer.seconds}, self.identity)


def _gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB"


def _with_target(described: dict[str, Any], task: Task) -> dict[str, Any]:
    """What config.json says of the graph, with the scale of the training nodes in its schema."""
    if not task.is_described:
        return described
    return {**described, "schema": {**(described["schema"] or {}), "target": task.described}}


def _mean(latest: Sequence[EpochRecord], epoch: int) -> EpochRecord:
    """The last epochs of runs, as the mean over the runs."""
    names = ("loss", "train_accuracy", "val_loss", "val_accuracy", "val_score")
    means = [sum(getattr(record, name) for record in latest) / len(latest) for name in names]
    return EpochRecord(epoch, *means, by_node=latest[0].by_node)
