"""Train runs of one graph and model together, in run folders of their own."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from torch_geometric.data import Data

from node2seq.environment import pick_device
from node2seq.runs.folder import RunConfig, RunFolder, RunResult
from node2seq.runs.graph import Say
from node2seq.runs.training import CHECKPOINT_SECONDS, OnEpoch, OnStart, Runs, Session
from node2seq.train.inputs import runs_that_fit
from node2seq.train.progress import EpochRecord
from node2seq.train.trainer import LOOK_EVERY, Trainer

_CHECKPOINT = ".checkpoint.safetensors"


def train_series(
    runs: Runs,
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
        session = Series(Path(home), device, on_start, on_epoch, checkpoint_seconds)
        session.open(runs, held, True, say, data)
        return session.train()


def trains_together(config: RunConfig, home: Path) -> bool:
    """Whether to train a series at once: on a GPU, and where one was begun that way.

    A processor has no idle units that further runs could use, so there each run is better finished before
    the next one starts.
    """
    begun = any(home.glob(f"*{_CHECKPOINT}"))
    return begun or (config.batches is None and pick_device(config.device).type == "cuda")


class Series(Session):
    """Several runs of one graph; ``home`` is the folder of the series.

    They are looked at now and then, because a look makes the host wait for the device.
    """

    alone: ClassVar[bool] = False
    epochs_at_once: ClassVar[int] = LOOK_EVERY

    @cached_property
    def identity(self) -> str:
        """A digest of what decides the outcome of all runs."""
        return hashlib.sha256(" ".join(folder.identity for folder in self.folders).encode()).hexdigest()

    @cached_property
    def checkpoint(self) -> Path:
        """Where the state lies."""
        return self.home / f"{self.identity[:12]}{_CHECKPOINT}"

    def _most_at_once(self, waiting: Sequence[RunFolder]) -> int:
        """As many as fit into memory."""
        if len(waiting) <= 1:
            return 1
        first = copy.deepcopy(self._model(waiting[0]))
        return runs_that_fit(first, self.data, waiting[0].run.settings.views)

    def _told(self, latest: Sequence[EpochRecord], epoch: int) -> EpochRecord:
        """The means over the runs."""
        names = ("loss", "train_accuracy", "val_loss", "val_accuracy", "val_score")
        means = [sum(getattr(record, name) for record in latest) / len(latest) for name in names]
        return EpochRecord(epoch, *means, by_node=latest[0].by_node)

    def _state(self, trainer: Trainer, members: Sequence[RunFolder]) -> dict[str, Any]:
        """All models, and which of the runs they are."""
        numbers = [self.folders.index(folder) for folder in members]
        return {"program": trainer.state_dict(), "members": numbers}
