"""R runs side by side, epoch by epoch: what one run does alone, with a leading dimension of runs.

Everything that decides about a run (its best epoch, whether it goes on) is worked out where the model is. The
host reads it when it wants to know, and an epoch can be recorded and replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from node2seq.errors import Node2SeqError
from node2seq.train.cross_fitting import FOLDS, Folds
from node2seq.train.cuda_graph import Replay
from node2seq.train.objective import Objective, Part, mean_over
from node2seq.train.optimizer import OPTIMIZERS, per_run
from node2seq.train.settings import TrainSettings

# What is kept of each epoch and run: the columns of the history.
COLUMNS = ("loss", "val_loss", "train_hits", "val_hits", "best_epoch")
# The parts of the state that have a row for each epoch; the second only with folds.
_BY_EPOCH = ("history", "tallies")


class Features(Protocol):
    """A tensor, or what else a model reads: handed on, and asked where it is and for how many nodes."""

    @property
    def device(self) -> torch.device: ...  # noqa: D102
    def size(self, dim: int, /) -> int: ...  # noqa: D102


@runtime_checkable
class HasParameterGroups(Protocol):
    """A model that tells its Node2Seq layer's parameters from the others."""

    def parameter_groups(self) -> Mapping[str, Iterable[nn.Parameter]]: ...  # noqa: D102


@runtime_checkable
class CanBeCaptured(Protocol):
    """A model that knows whether its passes can be recorded as a CUDA graph for such features."""

    def can_capture(self, x: Any) -> bool: ...  # noqa: D102


@dataclass(frozen=True)
class Standing:
    """Where the runs stand, one entry each: on the host, as of the last epoch."""

    active: list[bool]
    """Whether it goes on."""
    failed: list[bool]
    """Whether its loss stopped being finite."""
    epochs: list[int]
    """How many epochs it was trained."""
    best_epoch: list[int]
    """The epoch of its best weights; 0 before there is one."""
    best_hits: list[int]
    """How many validation nodes they hit; -1 before there are any."""


class Program:
    """Trains R runs of a model, or a plain model as the only one.

    Args:
        model: Called as ``model(x, edge_index)``. Gives logits ``[nodes, classes]``, or with ``stacked``
            ``[runs, nodes, classes]``. If it has ``parameter_groups()``, the group named ``"node2seq"`` gets
            ``conv_weight_decay``.
        x: The features.
        edge_index: The edges.
        y: The labels.
        splits: The training and validation nodes of each run, under ``"train"`` and ``"val"``. Under
            ``"folds"``, for all runs or for none, the fold of each validation node, for :meth:`judged`.
        settings: How each run is trained; ``views`` and ``optimizer`` are the same for all.
        stacked: Whether the model's parameters and outputs have a leading dimension of runs.
        capture: Whether epochs may be replayed as a CUDA graph, if the model can.
    """

    def __init__(
        self,
        model: nn.Module,
        x: Features,
        edge_index: Tensor,
        y: Tensor,
        splits: Sequence[Mapping[str, Tensor]],
        settings: Sequence[TrainSettings],
        *,
        stacked: bool,
        capture: bool = True,
    ) -> None:
        self.model, self.x, self.edge_index, self.y = model, x, edge_index, y
        self.settings, self.stacked, self._capture = list(settings), stacked, capture
        self._splits = list(splits)
        self.train, self.val = (Part([split[name] for split in splits], y) for name in ("train", "val"))
        self._folds = Folds([split["folds"] for split in splits], x.device) if "folds" in splits[0] else None
        self.epoch = 0
        self._averages: list[Tensor] = []
        if any(isinstance(p, UninitializedParameter) for p in model.parameters()):
            self.logits()  # lazy layers take their sizes from a first pass
        self._objective = Objective(self.train, settings)
        self._parameters, decays = _parameters_and_decays(model, settings)
        optimizer = OPTIMIZERS[settings[0].optimizer]
        self._optimizer = optimizer(self._parameters, [run.lr for run in settings], decays)
        self._averaging = [per_run([run.averaging for run in settings], p) for p in self._parameters]
        if any(run.averaging for run in settings):
            self._averages = [p.detach().clone() for p in self._parameters]
        self._best = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        self._state = self._new_state(len(splits))
        allowed = capture and isinstance(model, CanBeCaptured) and model.can_capture(x)
        self.replay = Replay(x.device, allowed)

    def _new_state(self, runs: int) -> dict[str, Tensor]:
        def fill(value: float, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.full(shape, value, dtype=dtype, device=self.x.device)

        longest = max(run.epochs for run in self.settings)
        never = longest + 1
        patience = [run.patience or never for run in self.settings]
        state = {
            "epoch": fill(0),
            "epochs": fill(0, runs),
            "best_epoch": fill(0, runs),
            "best_hits": fill(-1, runs),
            "best_loss": fill(torch.inf, runs, dtype=torch.float64),
            "failed": fill(False, runs, dtype=torch.bool),
            "last": torch.tensor([run.epochs for run in self.settings], device=self.x.device),
            "patience": torch.tensor(patience, device=self.x.device),
            "history": fill(0, longest, runs, len(COLUMNS), dtype=torch.float64),
        }
        if self._folds is not None:
            state["tallies"] = fill(0, longest, runs, FOLDS, 2, dtype=torch.float64)
        return state

    # Training #################################################################

    def advance(self) -> None:
        """Train every run one epoch, then look at its training and validation nodes once."""
        self.replay(self._run_epoch)
        self.epoch += 1

    def _run_epoch(self) -> None:
        self.model.train()
        self._optimizer.zero_grad()
        views = [self._call(self.model) for _ in range(self.settings[0].views)]
        if self.epoch == 0:
            self._check_logits(views[0])
        losses = self._objective(views)
        losses.sum().backward()  # each run's parameters see its own loss alone
        self._optimizer.step()
        self._average()
        self._judge(losses.detach(), self.logits())

    @torch.no_grad()
    def _average(self) -> None:
        if not self._averages:
            return
        # The first steps forget faster, so that the initial weights do not linger.
        start = (1 + self._state["epoch"]) / (10 + self._state["epoch"])
        for average, parameter, share in zip(self._averages, self._parameters, self._averaging, strict=True):
            average.lerp_(parameter, 1 - torch.minimum(share, start.to(share.dtype)))

    @torch.no_grad()
    def _judge(self, losses: Tensor, logits: Tensor) -> None:
        """Write down the epoch, and keep the weights of the runs whose best it is."""
        state = self._state
        active = self._active()
        right, val_losses = self.val.right(logits), self.val.losses(logits)
        val_loss, val_hits = mean_over(self.val.real, val_losses).double(), right.sum(1)
        row = state["epoch"].clone().view(1)
        state["epoch"] += 1
        finite = losses.isfinite() & val_loss.isfinite()
        state["failed"] |= active & ~finite
        active = active & finite
        state["epochs"] += active
        # Higher accuracy, then lower loss; the first of equals stays.
        equal = val_hits == state["best_hits"]
        better = active & ((val_hits > state["best_hits"]) | (equal & (val_loss < state["best_loss"])))
        for name, value in (("best_hits", val_hits), ("best_loss", val_loss), ("best_epoch", state["epoch"])):
            state[name].copy_(torch.where(better, value, state[name]))
        for name, tensor in self._judged_weights().items():
            chosen = better.view(-1, *[1] * (tensor.dim() - 1)) if tensor.dim() else better[0]
            self._best[name].copy_(torch.where(chosen, tensor, self._best[name]))
        figures = (losses, val_loss, self.train.right(logits).sum(1), val_hits, state["best_epoch"])
        state["history"].index_copy_(0, row, torch.stack([f.double() for f in figures], dim=1)[None])
        if self._folds is not None:
            state["tallies"].index_copy_(0, row, self._folds.tally(right, val_losses)[None])

    def _active(self) -> Tensor:
        """Which runs the next epoch counts for."""
        state = self._state
        waited = state["epoch"] - state["best_epoch"]
        return ~state["failed"] & (state["epoch"] < state["last"]) & (waited < state["patience"])

    def _judged_weights(self) -> dict[str, Tensor]:
        """The model's state, with the averages in the place of the weights that they are averages of."""
        state = dict(self.model.state_dict())
        if self._averages:
            state |= self._averages_by_name()
        return state

    def _averages_by_name(self) -> dict[str, Tensor]:
        by_id = {id(p): a for p, a in zip(self._parameters, self._averages, strict=True)}
        named = self.model.named_parameters(remove_duplicate=False)
        return {name: by_id[id(p)] for name, p in named if id(p) in by_id}

    # Looking ##################################################################

    def logits(self) -> Tensor:
        """What validation sees now, [R, N, classes]."""
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad():
                return self._call(self._averaged if self._averages else self.model)
        finally:
            self.model.train(was_training)

    def _averaged(self, *inputs: Any) -> Tensor:
        return torch.func.functional_call(self.model, self._averages_by_name(), inputs)

    def _call(self, model: Callable[..., Tensor]) -> Tensor:
        logits = model(self.x, self.edge_index)
        return logits if self.stacked else logits[None]

    def standing(self) -> Standing:
        """Wait for the device and say where the runs stand."""
        state = self._state
        names = ("failed", "epochs", "best_epoch", "best_hits")
        table = torch.stack([self._active().long(), *(state[name].long() for name in names)]).tolist()
        return Standing([bool(v) for v in table[0]], [bool(v) for v in table[1]], *table[2:])

    def history(self, first: int = 0) -> list[list[list[float]]]:
        """What is known of each epoch from number ``first`` (from 0) on: by epoch, run, :data:`COLUMNS`."""
        return self._state["history"][first : self.epoch].tolist()

    def judged(self) -> list[float]:
        """The validation accuracy of each run with the epoch chosen for each fold by the others.

        For a run that failed it means nothing.
        """
        assert self._folds is not None
        hits = self._folds.hits(self._state["tallies"][: self.epoch], self._state["epochs"])
        return (hits / self.val.count).tolist()

    def stop(self, runs: Sequence[bool]) -> None:
        """End the runs that are marked, with what they have reached."""
        ended = torch.tensor(runs, device=self.x.device)
        now = torch.minimum(self._state["last"], self._state["epoch"])
        self._state["last"].copy_(torch.where(ended, now, self._state["last"]))

    def finish(self) -> Tensor:
        """Put each run's best weights into the model; what it gives with them, [R, N, classes]."""
        self.model.load_state_dict(self._best)
        self._averages = []  # they were what was kept
        return self.logits()

    # Interrupted and resumed ##################################################

    def state_dict(self) -> dict[str, Any]:
        """Everything that training goes on from.

        Dropout is part of the model's own state (it is counted, not drawn), so no generator is kept.
        """
        return {
            "model": dict(self.model.state_dict()),
            "best": dict(self._best),
            "optimizer": self._optimizer.state_dict(),
            "averages": {str(i): average for i, average in enumerate(self._averages)},
            "runs": {
                name: tensor[: self.epoch] if name in _BY_EPOCH else tensor
                for name, tensor in self._state.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where :meth:`state_dict` was taken."""
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.epoch = int(state["runs"]["epoch"])
        for name, tensor in self._best.items():
            tensor.copy_(state["best"][name])
        for i, average in enumerate(self._averages):
            average.copy_(state["averages"][str(i)])
        for name, tensor in self._state.items():
            if name in _BY_EPOCH:  # as far as it goes, and no longer than these runs are trained
                rows = min(len(tensor), self.epoch)
                tensor[:rows].copy_(state["runs"][name][:rows])
            else:
                tensor.copy_(state["runs"][name])

    def take(self, model: nn.Module, runs: Sequence[int]) -> Program:
        """A program of some of the runs, where they stand.

        Args:
            model: The stacked model of these runs.
            runs: Their numbers here.
        """
        taken = Program(
            model,
            self.x,
            self.edge_index,
            self.y,
            [self._splits[run] for run in runs],
            [self.settings[run] for run in runs],
            stacked=True,
            capture=self._capture,
        )
        index = torch.tensor(runs, device=self.x.device)
        state = self.state_dict()
        by_epoch = {name: state["runs"].pop(name)[:, index] for name in _BY_EPOCH if name in state["runs"]}
        parts = {
            name: {key: value[index] if value.dim() else value for key, value in part.items()}
            for name, part in state.items()
        }
        parts["runs"] |= by_epoch
        taken.load_state_dict(parts)
        return taken

    def _check_logits(self, logits: Tensor) -> None:
        runs, nodes = len(self.settings), self.x.size(-2)
        if logits.dim() != 3 or logits.shape[:2] != (runs, nodes):
            raise Node2SeqError(
                f"a model output of shape {list(logits.shape if self.stacked else logits.shape[1:])}",
                f"the graph has {nodes} nodes, and each needs one row of logits",
                "Return [nodes, classes] from the model's forward",
            )
        highest = int(self.y.max())
        if highest >= logits.size(-1):
            raise Node2SeqError(
                f"label {highest}",
                f"the model gives {logits.size(-1)} classes, 0 to {logits.size(-1) - 1}",
                f"Build the model with out_channels={highest + 1}",
            )


def _parameters_and_decays(
    model: nn.Module, settings: Sequence[TrainSettings]
) -> tuple[list[nn.Parameter], list[list[float]]]:
    """What to train, and the penalty of each run on each."""
    named: Mapping[str, Iterable[nn.Parameter]] = {"all": model.parameters()}
    if isinstance(model, HasParameterGroups):
        named = model.parameter_groups()
    parameters, decays = [], []
    for name, group in named.items():
        own = [run.conv_weight_decay if name == "node2seq" else None for run in settings]
        decay = [
            run.weight_decay if value is None else value for run, value in zip(settings, own, strict=True)
        ]
        for parameter in group:
            parameters.append(parameter)
            decays.append(decay)
    return parameters, decays
