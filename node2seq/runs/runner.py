"""Train, evaluate and predict in a run folder, so that nothing that was computed is ever lost."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from node2seq.runs.checkpoint import load_checkpoint, save_checkpoint
from node2seq.data import Split, make_split
from node2seq.environment import describe, pick_device
from node2seq.errors import Node2SeqError
from node2seq.runs.graph import Graph, Say, open_again, open_graph, open_new
from node2seq.storage.lock import locked
from node2seq.train.metrics import Metrics
from node2seq.runs.pretrained import build_model, complete_options, load_weights, model_entry
from node2seq.runs.folder import RunConfig, RunFolder
from node2seq.storage.files import make_folder, remove_leftovers, write_bytes, write_tensors
from node2seq.storage.jsonl import append_line
from node2seq.train.fitter import Fitter
from node2seq.train.inference import embed, evaluate, predict
from node2seq.train.results import EpochRecord, FitResult

# Work that a kill can cost at most, but for an epoch that takes longer by itself.
CHECKPOINT_SECONDS = 15.0


class Stopped(KeyboardInterrupt):
    """Training was asked to stop, and did so after saving its state."""

    def __init__(self, folder: Path, epoch: int, signal_number: int) -> None:
        super().__init__(
            f"Stopped after epoch {epoch}; the state is saved. Go on with `node2seq train --resume {folder}`."
        )
        self.folder, self.epoch = folder, epoch
        self.exit_status = 128 + signal_number  # what a shell says of a process ended by that signal


@dataclass(frozen=True)
class RunStart:
    """What is known when training begins; ``epoch`` is above 0 when it goes on."""

    folder: Path
    config: RunConfig
    graph: Graph
    split: Split
    epoch: int
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """A finished run; ``metrics`` are those of the chosen epoch, by part of the split."""

    folder: Path
    config: RunConfig
    best_epoch: int
    epochs: int
    seconds: float
    metrics: dict[str, Metrics]
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, folder: RunFolder) -> Outcome:
        """Read the outcome of a finished run."""
        final = folder.final()
        try:
            metrics = {name: Metrics.from_dict(values) for name, values in final["metrics"].items()}
            return cls(
                folder=folder.path,
                config=folder.run,
                best_epoch=final["best_epoch"],
                epochs=final["epochs"],
                seconds=final["seconds"],
                metrics=metrics,
                warnings=tuple(final["warnings"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise Node2SeqError(
                str(folder.metrics_file), f"its last line was edited ({error!r})", "Restore the file"
            ) from error


def train_run(
    config: RunConfig,
    path: str | Path,
    *,
    resume: bool = False,
    on_start: Callable[[RunStart], None] | None = None,
    on_epoch: Callable[[EpochRecord], None] | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    say: Say | None = None,
) -> Outcome:
    """Train as ``config`` says and keep everything in the folder ``path``.

    Args:
        config: What to train.
        path: The run folder; must be free unless ``resume`` is given.
        resume: Go on exactly where an earlier process stopped or was killed; start if none did; return
            what is there if the run is finished.
        on_start: Called before the first epoch.
        on_epoch: Called after every epoch.
        checkpoint_seconds: Save the state this often.
        say: Called with a line before anything that uses the network.

    Raises:
        Stopped: After Ctrl-C or SIGTERM, with the state saved.
    """
    folder = RunFolder(path)
    options = complete_options(config.model, config.options, f"options of {config.model}")
    config = replace(config, options=options)
    check_start(folder, config, resume)
    device = pick_device(config.device)
    # What cannot be read or trained on leaves no folder behind.
    new = None if folder.exists else new_run(config, open_graph(config, say), device)
    make_folder(folder.path)
    with locked(folder.path):
        check_start(folder, config, resume)  # another process may have been here until a moment ago
        remove_leftovers(folder.path)
        if folder.finished:
            folder.checkpoint_file.unlink(missing_ok=True)
            return Outcome.of(folder)
        if new is None or folder.exists:
            graph = open_again(folder, say)
        else:
            graph = new.graph
            folder.write_config(new.config, new.split)
        fitter, spent = _prepare(folder, graph, device)
        if on_start is not None:
            on_start(RunStart(folder.path, folder.run, graph, folder.split, fitter.epoch, fitter.warnings))
        clock = time.monotonic() - spent
        _train(fitter, folder, clock, checkpoint_seconds, on_epoch)
        keep(folder, graph, fitter.finish(), fitter.model, time.monotonic() - clock)
    return Outcome.of(folder)


def evaluate_run(path: str | Path, *, device: str = "auto", say: Say | None = None) -> dict[str, Metrics]:
    """Measure a finished run's weights anew on every part of its split."""
    folder = RunFolder(path)
    model = load_model(folder, device)
    graph = open_again(folder, say)
    return _measure(model, graph, folder.split)


@dataclass(frozen=True)
class Prediction:
    """Class probabilities (and embeddings, if asked for) of every node of a graph, in its order."""

    node_ids: list[Any]
    class_names: list[str]
    probabilities: Tensor
    embeddings: Tensor | None

    @property
    def labels(self) -> list[str]:
        """The most probable class of each node."""
        return [self.class_names[i] for i in self.probabilities.argmax(dim=1).tolist()]


def predict_run(
    path: str | Path,
    *,
    edges: str | None = None,
    nodes: str | None = None,
    embeddings: bool = False,
    device: str = "auto",
    say: Say | None = None,
) -> Prediction:
    """Predict every node of the graph a run was trained on, or of another one given as files."""
    folder = RunFolder(path)
    model = load_model(folder, device)
    own = edges is None and nodes is None
    graph = open_again(folder, say) if own else open_new(folder, edges, nodes, say)
    return Prediction(
        node_ids=graph.node_ids,
        class_names=folder.config["graph"]["class_names"],
        probabilities=predict(model, graph.data).cpu(),
        embeddings=embed(model, graph.data).cpu() if embeddings else None,
    )


def load_model(folder: RunFolder, device: str = "auto") -> nn.Module:
    """Build a finished run's model with its chosen weights."""
    _ = folder.run  # a config.json that was edited is named before anything else
    folder.final()
    model = build_model(folder.config["model"], folder.config_file)
    load_weights(model, folder.model_file, folder.identity)
    return model.to(pick_device(device)).eval()


def check_start(folder: RunFolder, config: RunConfig, resume: bool) -> None:
    """Refuse to overwrite anything, and to go on with another run than the folder's own."""
    if folder.exists:
        if not resume:
            done = folder.finished
            raise Node2SeqError(
                str(folder.path),
                f"it holds {'a finished' if done else 'an unfinished'} run, and nothing is overwritten",
                "Give another folder with `--out`" + ("" if done else ", or go on with `--resume`"),
            )
        changed = folder.run.differences(config)
        if changed:
            raise Node2SeqError(
                str(folder.path),
                f"the run there was started with another {', '.join(changed)}",
                f"Go on with `node2seq train --resume {folder.path}` alone, or give another `--out`",
            )
    elif not folder.is_free:
        raise Node2SeqError(
            str(folder.path),
            "it exists, and there is something else than a run in it",
            "Give another folder with `--out`",
        )


@dataclass(frozen=True)
class NewRun:
    """A run that was not begun yet: what its folder will say."""

    graph: Graph
    split: Split
    config: dict[str, Any]


def new_run(config: RunConfig, graph: Graph, device: torch.device) -> NewRun:
    """What a run on a graph starts with, if it can be trained."""
    split = make_split(graph.data, config.split_rule, config.seed)
    entry = model_entry(config.model, graph.data.num_node_features, len(graph.class_names), config.options)
    Fitter(new_model(entry, config.seed, device), graph.data, split, config.settings)  # checks everything
    described = {
        "model": entry,
        # Name and options stand under "model", where anybody can build the model from; not twice.
        "run": {key: value for key, value in asdict(config).items() if key not in ("model", "options")},
        "graph": graph.describe(config.source),
        "environment": describe(device),
    }
    return NewRun(graph, split, described)


def new_model(entry: Mapping[str, Any], seed: int, device: torch.device) -> nn.Module:
    """The untrained model that an entry of config.json describes."""
    torch.manual_seed(seed)
    return build_model(entry, "model").to(device)


def _prepare(folder: RunFolder, graph: Graph, device: torch.device) -> tuple[Fitter, float]:
    """Return a fitter where the run stands, and the seconds spent so far."""
    model = new_model(folder.config["model"], folder.run.seed, device)
    fitter = Fitter(model, graph.data, folder.split, folder.run.settings)
    spent = 0.0
    if folder.checkpoint_file.exists():
        state = load_checkpoint(folder.checkpoint_file, folder.identity)
        fitter.load_state_dict(state["fitter"])
        spent = state["seconds"]
    # A killed process may have written more epochs than its last checkpoint knows, or half a line.
    write_bytes(folder.metrics_file, lines(fitter.history).encode())
    return fitter, spent


def _train(
    fitter: Fitter,
    folder: RunFolder,
    clock: float,
    checkpoint_seconds: float,
    on_epoch: Callable[[EpochRecord], None] | None,
) -> None:
    def save() -> None:
        state = {"fitter": fitter.state_dict(), "seconds": time.monotonic() - clock}
        save_checkpoint(folder.checkpoint_file, state, folder.identity)

    saved = time.monotonic()
    with stop_requests() as asked:
        while not fitter.done:
            record = fitter.step()
            append_line(folder.metrics_file, asdict(record))
            if asked:
                save()
                raise Stopped(folder.path, fitter.epoch, asked[0])
            if time.monotonic() - saved >= checkpoint_seconds:
                save()
                saved = time.monotonic()
            if on_epoch is not None:
                on_epoch(record)


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Collect Ctrl-C and SIGTERM instead of breaking an epoch in two; a second one breaks it after all."""
    asked: list[int] = []

    def ask(number: int, _frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    if threading.current_thread() is not threading.main_thread():  # only the main one may listen
        yield asked
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def keep(folder: RunFolder, graph: Graph, result: FitResult, model: nn.Module, seconds: float) -> None:
    """Write the figures, then the weights, which make the run finished."""
    final = {
        "final": True,
        "best_epoch": result.best.epoch,
        "epochs": len(result.history),
        "seconds": round(seconds, 3),
        "metrics": {name: m.to_dict() for name, m in _measure(model, graph, folder.split).items()},
        "warnings": list(result.warnings),
    }
    write_bytes(folder.metrics_file, (lines(result.history) + json.dumps(final) + "\n").encode())
    write_tensors(folder.model_file, model.state_dict(), {"belongs_to": folder.identity})
    folder.checkpoint_file.unlink(missing_ok=True)


def _measure(model: nn.Module, graph: Graph, split: Split) -> dict[str, Metrics]:
    parts = {"train": split.train, "val": split.val, "test": split.test}
    # The fixed splits count 1000 test nodes, the paper's text all that are left: both are kept.
    if split.test_rest.numel() != split.test.numel():
        parts["test_rest"] = split.test_rest
    return {name: evaluate(model, graph.data, index) for name, index in parts.items() if index.numel()}


def lines(history: list[EpochRecord] | tuple[EpochRecord, ...]) -> str:
    """The epochs' lines of metrics.jsonl."""
    return "".join(json.dumps(asdict(record)) + "\n" for record in history)
