"""What a finished run reached: the last line of its metrics.jsonl."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import nn

from node2seq.errors import Node2SeqError
from node2seq.runs.folder import RunConfig, RunFolder
from node2seq.storage import write_bytes, write_tensors
from node2seq.train.metrics import Metrics
from node2seq.train.progress import EpochRecord, FitResult


@dataclass(frozen=True)
class RunResult:
    """A finished run; ``metrics`` are those of the chosen epoch, by part of the split."""

    folder: Path
    config: RunConfig
    best_epoch: int
    epochs: int
    seconds: float
    metrics: dict[str, Metrics]
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, folder: RunFolder) -> RunResult:
        """Read the result of a finished run."""
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


def keep_result(folder: RunFolder, fitted: FitResult, model: nn.Module, seconds: float) -> RunResult:
    """Write the figures, then the weights, which make the run finished."""
    result = RunResult(
        folder=folder.path,
        config=folder.run,
        best_epoch=fitted.best.epoch,
        epochs=len(fitted.history),
        seconds=round(seconds, 3),
        metrics=fitted.metrics,
        warnings=fitted.warnings,
    )
    final = {
        "final": True,
        "best_epoch": result.best_epoch,
        "epochs": result.epochs,
        "seconds": result.seconds,
        "metrics": {name: metrics.to_dict() for name, metrics in result.metrics.items()},
        "warnings": list(result.warnings),
    }
    text = epoch_lines(fitted.history) + json.dumps(final) + "\n"
    write_bytes(folder.metrics_file, text.encode())
    write_tensors(folder.model_file, model.state_dict(), {"belongs_to": folder.identity})
    folder.checkpoint_file.unlink(missing_ok=True)
    return result


def epoch_lines(history: Sequence[EpochRecord]) -> str:
    """The epochs' lines of metrics.jsonl."""
    return "".join(json.dumps(asdict(record)) + "\n" for record in history)
