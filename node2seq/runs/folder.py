"""The run folder: what a run is, where its files lie, and whether they still belong together.

===========================  ================================================================
``config.json``              model, training, data, seed, versions; written first, never changed
``split.json``               which nodes were trained on, chose the epoch, were counted
``metrics.jsonl``            one line an epoch, then one line with the final figures
``checkpoint.safetensors``   what training resumes from; only while training
``model.safetensors``        the chosen weights; written last, so a run that has it is finished
``report.html``              all of it to look at
===========================  ================================================================
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from node2seq.data import Split
from node2seq.data.reading import Source
from node2seq.data.splits import PARTS
from node2seq.errors import Node2SeqError
from node2seq.options import build
from node2seq.runs.check import check_is_run
from node2seq.storage import (
    LOCK_FILES,
    read_json,
    read_lines,
    sha256_file,
    write_bytes,
    write_json,
    write_tensors,
)
from node2seq.train.measured import Calibration, LinearGain, Measured, metrics_from_dict
from node2seq.train.progress import EpochRecord, FitResult
from node2seq.train.settings import BatchSettings, TrainSettings, check_carried, complete, plainest
from node2seq.train.task import Classification, MultiLabel, Task, task_from

FORMAT = 1


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides the outcome of a run.

    Args:
        source: The graph.
        model: A key of ``node2seq.nn.models.MODELS``.
        options: Its ``Options``. A mapping is checked and completed with the defaults, once. Model and
            options of earlier versions become today's.
        settings: How to train.
        row_normalize: Divide each node's features by their sum first.
        split_rule: A key of ``node2seq.data.RULES``; None: the rule of the data set.
        seed: Of the split and of the initial weights.
        device: ``"auto"``, ``"cpu"``, ``"cuda"`` …
        baseline: A second run on the same split, kept in a folder inside this run's.
        batches: Mini-batches; None: the full batch, or mini-batches by default where it does not fit.
    """

    source: Source
    model: str = "node2seq"
    options: Any = field(default_factory=dict)
    settings: TrainSettings = field(default_factory=TrainSettings)
    row_normalize: bool = False
    split_rule: str | None = None
    seed: int = 0
    device: str = "auto"
    baseline: RunConfig | None = None
    batches: BatchSettings | None = None

    def __post_init__(self) -> None:
        if isinstance(self.options, Mapping):
            model, options = complete(self.model, self.options, f"options of {self.model}")
            object.__setattr__(self, "model", model)
            object.__setattr__(self, "options", options)
        check_carried(self.model, self.source.carried)

    @property
    def name(self) -> str:
        """The folder's name unless told otherwise."""
        name = f"{self.source.title}-{self.model}-s{self.seed}".replace("*", "-star")
        return re.sub(r"[^\w.-]+", "_", name)

    def differences(self, other: RunConfig) -> list[str]:
        """Name the fields that make two runs differ; where the data lies and the device do not."""
        if other.batches is None:  # whatever fits
            other = replace(other, batches=self.batches)
        elif other.batches.fanout is None and self.batches is not None:
            other = replace(other, batches=replace(other.batches, fanout=self.batches.fanout))
        mine, theirs = (_deciding(config._plainest().as_dict()) for config in (self, other))
        return sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))

    def as_dict(self) -> dict[str, Any]:
        """As it is written to files: nothing is said of mini-batches and stores where there are none."""
        values = asdict(self)
        for run in (values, values["baseline"]):
            if run is not None and run["batches"] is None:
                del run["batches"]
            if run is not None and run["source"]["store"] is None:
                del run["source"]["store"]
        return values

    def described(self, in_channels: int, out_channels: int, edge_dim: int | None) -> dict[str, Any]:
        """Return what config.json says of the model and the run."""
        run = self.as_dict()
        # Name and options stand under "model", where anybody can build the model from; not twice.
        name, options = run.pop("model"), run.pop("options")
        model = {
            "name": name,
            "in_channels": in_channels,
            "out_channels": out_channels,
            **({} if edge_dim is None else {"edge_dim": edge_dim}),
            "options": options,
        }
        return {"model": model, "run": run}

    def _plainest(self) -> RunConfig:
        model, options = plainest(self.model, asdict(self.options))
        return replace(self, model=model, options=options)


class RunFolder:
    """A run folder on the disk. Reading checks; what was written here is known and not read back."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    config_file = property(lambda self: self.path / "config.json")
    split_file = property(lambda self: self.path / "split.json")
    metrics_file = property(lambda self: self.path / "metrics.jsonl")
    checkpoint_file = property(lambda self: self.path / "checkpoint.safetensors")
    model_file = property(lambda self: self.path / "model.safetensors")
    report_file = property(lambda self: self.path / "report.html")
    failure_file = property(lambda self: self.path / "failure.json")
    details_file = property(lambda self: self.path / "details.json")

    def read(self) -> None:
        """Have in memory what decides about the run, for processes that do not see the disk."""
        _ = self.config, self.run, self.split

    @property
    def exists(self) -> bool:
        """Whether a run was started here: its config is there."""
        return self.config_file.is_file()

    @property
    def finished(self) -> bool:
        """Whether the weights were chosen."""
        return self.exists and self.model_file.is_file()

    @property
    def failure(self) -> Node2SeqError | None:
        """Why the run failed, if it did: the same settings would fail again."""
        if not self.failure_file.is_file():
            return None
        said = read_json(self.failure_file)
        given, reason, cure = (str(said.get(name, "?")) for name in ("given", "reason", "cure"))
        return Node2SeqError(
            str(self.path),
            f"this run failed and would fail again ({given}: {reason})",
            f"{cure}, in another folder (`--out`)",
        )

    def write_failure(self, error: Node2SeqError) -> None:
        """Keep why the run failed."""
        write_json(self.failure_file, {"given": error.given, "reason": error.reason, "cure": error.cure})

    @property
    def is_free(self) -> bool:
        """Whether a new run may be put here: nothing is there, or only what a killed start left."""
        if not self.path.exists():
            return True
        left = {*LOCK_FILES, self.split_file.name}
        return self.path.is_dir() and not [
            entry for entry in self.path.iterdir() if entry.name not in left and entry.suffix != ".part"
        ]

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of config.json, known to be of a format we understand."""
        check_is_run(self.path)
        config = read_json(self.config_file)
        check_format(config, self.config_file)
        for part in ("model", "graph", "run", "environment"):
            if not isinstance(config.get(part), dict):
                raise Node2SeqError(
                    f"{self.config_file}: {part}", "it is missing", "Restore the file from a copy"
                )
        return config

    @cached_property
    def run(self) -> RunConfig:
        """The typed part of config.json."""
        model = self.config["model"]
        values = {"model": model.get("name"), "options": model.get("options"), **self.config["run"]}
        return build(RunConfig, values, str(self.config_file))

    @cached_property
    def task(self) -> Task:
        """What is predicted; of numbers, with the scale of the training nodes."""
        schema, loss = self.config["graph"].get("schema") or {}, self.run.settings.loss
        try:
            return task_from(schema.get("target"), loss)
        except (KeyError, TypeError, ValueError) as error:
            raise Node2SeqError(
                f"{self.config_file}: target",
                "it does not say what is predicted",
                "Restore the file from a copy",
            ) from error

    @property
    def calibrated_task(self) -> Task:
        """What a finished run predicts, with calibrated probabilities if it has them."""
        calibration, task = self.result.calibration, self.task
        if calibration is None or not isinstance(task, Classification | MultiLabel):
            return task
        return replace(task, temperature=calibration.temperature)

    @cached_property
    def split(self) -> Split:
        """The nodes of split.json."""
        values = read_json(self.split_file)
        try:
            parts: dict[str, Tensor] = {
                name: torch.tensor(values[name], dtype=torch.int64) for name in (*PARTS, "test_rest")
            }
            return Split(rule=str(values["rule"]), seed=int(values["seed"]), **parts)
        except (KeyError, TypeError, ValueError) as error:
            raise Node2SeqError(
                str(self.split_file),
                "it does not list the nodes of each part of the split",
                "Restore the file from a copy",
            ) from error

    @cached_property
    def split_sha256(self) -> str:
        """The digest of split.json."""
        return sha256_file(self.split_file)

    @cached_property
    def identity(self) -> str:
        """A digest of what decides the outcome; weights and checkpoints carry it, so edits are noticed."""
        parts: dict[str, Any] = {"run": _deciding(self.config["run"]), "model": self.config["model"]}
        parts["graph"] = self.config["graph"].get("sha256")
        text = json.dumps(parts, sort_keys=True) + self.split_sha256
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """The epochs' lines of metrics.jsonl."""
        return [line for line in read_lines(self.metrics_file) if "epoch" in line]

    @cached_property
    def result(self) -> RunResult:
        """What a finished run reached: the last line of metrics.jsonl."""
        final = self.final()
        # Runs of earlier versions have neither.
        calibration, linear = final.get("calibration"), final.get("linear")
        try:
            return RunResult(
                folder=self,
                config=self.run,
                best_epoch=final["best_epoch"],
                epochs=final["epochs"],
                seconds=final["seconds"],
                metrics={name: metrics_from_dict(values) for name, values in final["metrics"].items()},
                warnings=tuple(final["warnings"]),
                calibration=None if calibration is None else Calibration(**calibration),
                linear=None if linear is None else LinearGain(**linear),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise Node2SeqError(
                str(self.metrics_file),
                "its last line does not hold the figures of a run",
                "Restore the file from a copy, or train again",
            ) from error

    @cached_property
    def details(self) -> dict[str, Any]:
        """How the layers order neighbours, and what is right where; runs of earlier versions have none."""
        return read_json(self.details_file) if self.details_file.is_file() else {}

    def final(self) -> dict[str, Any]:
        """The last line of metrics.jsonl: the chosen epoch and the figures."""
        if self.failure is not None:
            raise self.failure
        if not self.finished:
            raise Node2SeqError(
                str(self.path),
                "the run is not finished",
                f"Finish it with `node2seq train --resume {self.path}`",
            )
        lines = [line for line in read_lines(self.metrics_file) if line.get("final")]
        if not lines:
            raise Node2SeqError(
                str(self.metrics_file), "the line with the final figures is missing", "Restore the file"
            )
        return lines[-1]

    def baseline_folder(self, config: RunConfig) -> RunFolder:
        """Where the run lies that this one is compared with."""
        return RunFolder(self.path / f"baseline-{config.model.replace('*', '-star')}")

    def write_config(self, run: RunConfig, config: Mapping[str, Any], split: Split) -> None:
        """Start a run: the split first, since a config makes the folder a run."""
        parts = {name: getattr(split, name).tolist() for name in (*PARTS, "test_rest")}
        content = json.dumps({"rule": split.rule, "seed": split.seed, **parts}).encode()
        write_bytes(self.split_file, content)
        described = {"format": FORMAT, **config}
        write_json(self.config_file, described)
        # Known, and so not read back; through JSON, because a tuple is a list on the disk.
        self.config, self.run = json.loads(json.dumps(described)), run
        self.split, self.split_sha256 = split, hashlib.sha256(content).hexdigest()

    def write_epochs(self, history: Sequence[EpochRecord], final: Mapping[str, Any] | None = None) -> None:
        """Replace metrics.jsonl by the epochs so far, and the final figures if there are any."""
        self.history = [record.to_dict() for record in history]
        lines = [*self.history, final] if final else self.history
        write_bytes(self.metrics_file, "".join(json.dumps(line) + "\n" for line in lines).encode())

    def write_result(
        self, fitted: FitResult, model: nn.Module, seconds: float, details: dict[str, Any]
    ) -> None:
        """Write the figures, then the weights, which make the run finished."""
        result = RunResult(
            folder=self,
            config=self.run,
            best_epoch=fitted.best.epoch,
            epochs=len(fitted.history),
            seconds=round(seconds, 3),
            metrics=fitted.metrics,
            warnings=fitted.warnings,
            calibration=fitted.calibration,
            linear=fitted.linear,
        )
        final: dict[str, Any] = {
            "final": True,
            "best_epoch": result.best_epoch,
            "epochs": result.epochs,
            "seconds": result.seconds,
            "metrics": {name: metrics.to_dict() for name, metrics in result.metrics.items()},
            "warnings": list(result.warnings),
        }
        for name, found in {"calibration": result.calibration, "linear": result.linear}.items():
            if found is not None:
                final[name] = asdict(found)
        self.write_epochs(fitted.history, final)
        content = json.dumps(details)
        write_bytes(self.details_file, content.encode())
        self.details = json.loads(content)
        write_tensors(self.model_file, model.state_dict(), {"belongs_to": self.identity})
        self.checkpoint_file.unlink(missing_ok=True)
        self.result = result


@dataclass(frozen=True)
class RunResult:
    """A finished run; ``metrics`` are those of the chosen epoch, by part of the split."""

    folder: RunFolder = field(compare=False)
    config: RunConfig
    best_epoch: int
    epochs: int
    seconds: float
    metrics: dict[str, Measured]
    warnings: tuple[str, ...]
    calibration: Calibration | None = None
    linear: LinearGain | None = None


def check_start(folder: RunFolder, config: RunConfig, resume: bool) -> None:
    """Refuse to overwrite anything, and to resume another run than the folder's own."""
    if folder.exists:
        if not resume:
            has_ended = folder.finished or folder.failure is not None
            state = "a finished" if folder.finished else "a failed" if has_ended else "an unfinished"
            raise Node2SeqError(
                str(folder.path),
                f"it holds {state} run, and nothing is overwritten",
                "Give another folder with `--out`" + ("" if has_ended else ", or resume with `--resume`"),
            )
        changed = folder.run.differences(config)
        if changed:
            raise Node2SeqError(
                str(folder.path),
                f"the run there was started with another {', '.join(changed)}",
                f"Resume with `node2seq train --resume {folder.path}` alone, or give another `--out`",
            )
    elif not folder.is_free:
        raise Node2SeqError(
            str(folder.path),
            "it exists and contains something other than a run",
            "Give another folder with `--out`",
        )


def check_format(config: Mapping[str, Any], path: Path) -> None:
    """Refuse a config.json that a later version wrote, or that has no version at all."""
    number = config.get("format")
    if not isinstance(number, int):
        raise Node2SeqError(f"{path}: format", "it is missing", "Restore the file from a copy")
    if number > FORMAT:
        raise Node2SeqError(
            f"{path}: format={number}",
            f"it was written by a later version of node2seq; this one reads formats up to {FORMAT}",
            "Update with `pip install --upgrade node2seq`",
        )


def free_folder(parent: Path, name: str) -> Path:
    """Return ``parent/name``, or ``name-2``, ``name-3`` … where that is taken."""
    numbered = (parent / f"{name}-{number}" for number in itertools.count(2))
    return next(path for path in itertools.chain([parent / name], numbered) if RunFolder(path).is_free)


def newest_folder(
    parent: Path, name: str | None = None, marks: tuple[str, ...] = ("config.json",)
) -> Path | None:
    """Return the folder last started among those named ``name``, ``name-2`` …, or among all.

    Folders count that hold one of the files ``marks``, and the time of that file.
    """
    if not parent.is_dir():
        return None
    started = {
        path.parent: path.stat().st_mtime_ns
        for mark in marks
        for path in parent.glob(f"*/{mark}")
        if name is None or re.fullmatch(rf"{re.escape(name)}(-\d+)?", path.parent.name)
    }
    return max(started, key=lambda path: started[path], default=None)


def _deciding(run: Mapping[str, Any]) -> dict[str, Any]:
    """What of a run decides its outcome: the graph is known by its digest, so its path does not."""
    kept = {key: value for key, value in run.items() if key not in ("source", "device", "baseline")}
    kept["source"] = run["source"]["name"]
    if kept.get("batches"):
        kept["batches"] = {name: value for name, value in kept["batches"].items() if name != "workers"}
    # Through JSON, because a tuple among the options comes back from the disk as a list.
    return json.loads(json.dumps(kept))
