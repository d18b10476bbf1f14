"""The one trainer: R runs side by side, epoch by epoch; a single run is R = 1.

:class:`~node2seq.train.fitter.Fitter` drives it epoch by epoch, :func:`~node2seq.train.many.train_many` and
the run folders drive it many epochs at a time.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch_geometric.data import Data

from node2seq.errors import Node2SeqError
from node2seq.nn.conv.ranks import Trace, recorded
from node2seq.nn.models.network import Edges
from node2seq.nn.models.residual import ResidualNetwork
from node2seq.train.cross_fitting import Folds
from node2seq.train.discriminant import add_linear
from node2seq.train.inputs import SplitLike, check_features, edge_values, features_for, graph_tensors
from node2seq.train.progress import BY_EPOCH, EarlyStopping, FitResult, RunProgress, score_of
from node2seq.train.settings import TrainSettings
from node2seq.train.stacking import stack, take, unstack
from node2seq.train.step import OPTIMIZERS, Objective, Part, WeightAverages
from node2seq.train.task import Classification

# Epochs that run as usual first: kernels are compiled, plans built and workspaces allocated in them.
WARM_UP = 3
# Epochs between two looks at how many runs stand: a look makes the host wait for the device.
LOOK_EVERY = 10
# Fewer validation nodes do not tell whether a linear part helps.
_FEWEST_TO_CHOOSE = 20


class Replay:
    """Runs a function again and again, as a CUDA graph once it is warm.

    What the function reads and writes must stay where it is, and it must not ask the device for a value.
    It is given with each call and not kept: whoever owns both would be kept alive by its own method, and with
    it all the memory of the recording.

    Args:
        device: The GPU that it runs on.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream: torch.cuda.Stream | None = torch.cuda.Stream(device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self.calls = 0
        self.replayed = 0
        self.refused: str | None = None  # why it could not be recorded; it then runs as it is

    def __call__(self, function: Callable[[], None]) -> None:
        """Run it once more.

        Args:
            function: One epoch; the same each time.
        """
        if self._stream is None:
            function()
        elif self._graph is None and self.calls < WARM_UP:
            # Beside the default stream, which cannot be recorded, so that what is warm is what is used then.
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                function()
            torch.cuda.current_stream().wait_stream(self._stream)
        else:
            if self._graph is None:
                self._graph = self._record(function, self._stream)
            if self._graph is None:
                function()
            else:
                self._graph.replay()
                self.replayed += 1
        self.calls += 1

    def _record(self, function: Callable[[], None], stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph | None:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=stream):
                function()  # recorded, not run
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # something in it waits for the device; nothing of it was run
            self.refused = str(error)
            self._stream = None
            return None
        return graph


class Trainer:
    """Trains a model, or the models of R runs as one whose tensors have a leading dimension of runs.

    Args:
        model: Called as ``model(x, edge_index)``, gives ``[nodes, outputs]``: the logits of classes, or one
            number. One model is trained as it is; several, even a list of one, are stacked. If it has
            ``parameter_groups()``, the group named ``"node2seq"`` gets ``conv_weight_decay``; if it has
            ``can_capture(x)`` and that is true, epochs on a GPU are replayed as a CUDA graph.
        data: ``x``, ``edge_index`` and ``y``: class numbers, where −1 means unlabelled, or numbers as floats,
            where NaN does. Moved to the model's device. What the edges carry, ``edge_weight`` and
            ``edge_attr``, is passed to the model by name.
        splits: The nodes of each run.
        settings: How each run is trained; ``views``, ``optimizer``, ``metric`` and ``loss`` are the same for
            all.
        folds: The fold of each validation node of each run, for :meth:`cross_fitted`.
        capture: Whether epochs may be replayed as a CUDA graph; the bits are the same.
    """

    def __init__(
        self,
        model: nn.Module | Sequence[nn.Module],
        data: Data,
        splits: Sequence[SplitLike],
        settings: Sequence[TrainSettings],
        *,
        folds: Sequence[Tensor] | None = None,
        capture: bool = True,
    ) -> None:
        self._started = time.monotonic()
        self.stacked = not isinstance(model, nn.Module)
        self.model = model if isinstance(model, nn.Module) else stack(model)
        self._read_graph(data)
        self.runs = [RunProgress(split, self.y, own) for split, own in zip(splits, settings, strict=True)]
        self._together, self._folds, self._capture = len(self.runs), folds, capture
        self._build()

    def _read_graph(self, data: Data) -> None:
        """Keep what the model reads of the graph, where it reads it."""
        x, self.edge_index, self.y = graph_tensors(self.model, data)
        check_features(x)
        self.edge_values = edge_values(self.model, data)
        self.x = features_for(self.model, x)

    def _build(self) -> None:
        """Set up the first epoch of :attr:`runs` with the weights of :attr:`model`."""
        model, settings = self.model, [run.settings for run in self.runs]
        self.epoch = 0
        self._seen = 0
        self._averages = WeightAverages([], [])
        if any(isinstance(p, UninitializedParameter) for p in model.parameters()):
            self.logits()  # lazy layers take their sizes from a first pass
        self.task = self.runs[0].task.stacked([run.task for run in self.runs], self.y.device)
        train, val = (
            Part([run.nodes[name] for run in self.runs], self.y, self.task) for name in ("train", "val")
        )
        self._objective = Objective(train, settings)
        parameters, decays = _parameters_and_decays(model, settings)
        optimizer = OPTIMIZERS[settings[0].optimizer]
        self._optimizer = optimizer(parameters, [run.lr for run in settings], decays)
        self._averages = WeightAverages(parameters, [run.averaging for run in settings])
        score = score_of(self.task, settings[0].metric)
        folds = None if self._folds is None else Folds(self._folds, self.y.device, score)
        self._stopping = EarlyStopping(settings, train, val, model.state_dict(), folds)
        can_capture = getattr(model, "can_capture", None)
        # What edges carry is read by plain PyTorch too, which may wait for the device.
        allowed = self._capture and not self.edge_values and self.y.is_cuda
        allowed = allowed and can_capture is not None and can_capture(self.x)
        self.replay = Replay(self.y.device) if allowed else None

    @property
    def active(self) -> bool:
        """Whether any run is trained further."""
        return any(run.active for run in self.runs)

    @property
    def captured(self) -> int:
        """How many epochs were replayed as a CUDA graph."""
        return 0 if self.replay is None else self.replay.replayed

    @property
    def seconds(self) -> float:
        """How long it has been training, the time before an interruption included."""
        return time.monotonic() - self._started

    @property
    def seconds_per_run(self) -> float:
        """The same, divided by the runs that were trained together from the start."""
        return self.seconds / self._together

    def advance(self, epochs: int = 1) -> None:
        """Train every run for some epochs, none past the last of the longest run; then read the figures."""
        longest = max(run.settings.epochs for run in self.runs)
        for _ in range(min(epochs, longest - self.epoch)):
            if self.replay is None:
                self._run_epoch()
            else:
                self.replay(self._run_epoch)
            self.epoch += 1
        self._look()

    def _run_epoch(self) -> None:
        self.model.train()
        losses = self._train_epoch()
        with self._averages.in_place():
            self._stopping.update(losses, self._logits(), self.model.state_dict())

    def _train_epoch(self) -> Tensor:
        """Take the steps of an epoch, of which the full batch has one; the loss of each run, [R]."""
        self._optimizer.zero_grad()
        views = [self._call_model() for _ in range(self.runs[0].settings.views)]
        if self.epoch == 0:
            self._check_logits(views[0])
        return self._step(self._objective, views, self._stopping.state["epoch"])

    def _step(self, objective: Objective, views: Sequence[Tensor], number: Tensor) -> Tensor:
        """Take one step, the ``number``-th; the loss of each run, [R]."""
        losses = objective(views)
        losses.sum().backward()  # each run's parameters see its own loss alone
        self._sum_gradients()
        self._optimizer.step()
        self._averages.update(number)
        return losses.detach()

    def _sum_gradients(self) -> None:
        """Add the gradients of other processes, if there are any."""

    def _call_model(self) -> Tensor:
        logits = self.model(self.x, self.edge_index, **self.edge_values)
        return logits if self.stacked else logits[None]

    def logits(self) -> Tensor:
        """What validation sees now, [R, N, classes]."""
        with self._averages.in_place():
            return self._logits()

    def _logits(self) -> Tensor:
        """What the model gives with the weights that it has, [R, N, classes]."""
        return infer(self.model, self._call_model)

    def traces(self, model: nn.Module | None = None) -> tuple[Tensor, dict[str, Trace]]:
        """What a model gives by itself, [N, classes], and what its Node2Seq layers do, by name.

        Layers in which the order plays no part are left out.

        Args:
            model: One of :meth:`model_of`; the weights of now, or their averages, if left out.
        """
        network = model or self.model
        layers = dict(network.named_modules())
        with recorded(network) as calls:
            outputs = self.logits()[0] if model is None else next(self._logits_of([model]))
        return outputs, {name: call.trace for name, call in calls.items() if layers[name].reads_order}

    def _logits_of(self, models: Iterable[nn.Module]) -> Iterator[Tensor]:
        """What each model gives by itself, [N, classes]."""
        for model in models:
            yield infer(model, partial(model, **self.edge_values), self.x, self.edge_index)

    def _look(self) -> None:
        """Wait for the device, and tell each run of the epochs since the last look."""
        for row in self._stopping.history(self._seen, self.epoch):
            for run, figures in zip(self.runs, row, strict=True):
                if run.active:
                    run.add(figures)
        self._seen = self.epoch

    def stop(self, runs: Sequence[bool]) -> None:
        """End the runs that are marked, with what they have reached."""
        self._stopping.stop(runs)
        for run, is_unwanted in zip(self.runs, runs, strict=True):
            if is_unwanted:
                run.last_epoch = min(run.last_epoch, self.epoch)

    def take(self, runs: Sequence[int]) -> Trainer:
        """A trainer of some of the runs, where they stand.

        Args:
            runs: Their numbers here.
        """
        taken = copy.copy(self)
        taken.model = take(self.model, runs)
        taken.runs = [self.runs[run] for run in runs]
        taken._folds = None if self._folds is None else [self._folds[run] for run in runs]
        taken._build()
        index = torch.tensor(runs, device=self.y.device)
        state = self.state_dict()
        by_epoch = {name: state["runs"].pop(name)[:, index] for name in BY_EPOCH if name in state["runs"]}
        parts = {
            name: {key: value[index] if value.dim() else value for key, value in part.items()}
            for name, part in state.items()
        }
        parts["runs"] |= by_epoch
        taken._load(parts)
        return taken

    def finish(self) -> None:
        """Put each run's best weights into the model."""
        self.model.load_state_dict(self._stopping.best)
        self._averages.discard()  # they were what was kept
        self._add_linear()

    def _add_linear(self) -> None:
        """Fit the linear part of each run's network, if networks have one and predict classes."""
        # Cross-fitting judges the network alone: a part that validation nodes choose would be judged by them.
        if self._folds is not None or not isinstance(self.task, Classification):
            return
        if not isinstance(self.model, ResidualNetwork) or (part := self.model.linear) is None:
            return
        edges = Edges(self.edge_index, self.edge_values.get("edge_weight"))
        models, fitted = [self.model_of(number) for number in range(len(self.runs))], []
        for run, model, own in zip(self.runs, models, self._logits_of(models), strict=True):
            assert isinstance(model, ResidualNetwork)
            assert model.linear is not None
            if run.best is not None and run.nodes["val"].numel() >= _FEWEST_TO_CHOOSE:
                run.linear = add_linear(model.linear, own, self.x, edges, run.nodes, self.y, run.settings)
            fitted.append(model.linear)
        if self.stacked:
            part.set_weights(
                torch.stack([each.weight for each in fitted]), torch.stack([each.bias for each in fitted])
            )

    def results(
        self, models: Sequence[nn.Module] | None = None, *, with_rest: bool = False
    ) -> list[FitResult | None]:
        """Measure the weights that :meth:`finish` chose; None for a run without a finite epoch.

        Args:
            models: The models of the runs, to measure each by itself; in one pass for all if left out.
            with_rest: See :meth:`RunProgress.result`.
        """
        logits = self.logits() if models is None else self._logits_of(models)
        pairs = zip(self.runs, logits, strict=True)
        return [run.result(own, self.y, with_rest=with_rest) for run, own in pairs]

    def model_of(self, run: int) -> nn.Module:
        """The model of one run by itself, with its weights of now."""
        return unstack(self.model, run) if self.stacked else self.model

    def cross_fitted(self) -> list[float | None]:
        """Each run's metric on validation nodes by cross-fitting; None without folds or for a failed run."""
        if self._folds is None:
            return [None] * len(self.runs)
        values = self._stopping.cross_fitted(self.epoch)
        return [None if run.error else value for run, value in zip(self.runs, values, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Everything that training resumes from: tensors in nested dicts.

        Dropout is part of the model's own state (it is counted, not drawn), so no generator is kept.
        """
        return {
            "model": dict(self.model.state_dict()),
            "best": dict(self._stopping.best),
            "optimizer": self._optimizer.state_dict(),
            "averages": {str(i): average for i, average in enumerate(self._averages.tensors)},
            "runs": self._stopping.state_dict(self.epoch),
        }

    def load_state_dict(self, state: Mapping[str, Any], seconds: float = 0.0) -> None:
        """Resume exactly where :meth:`state_dict` was taken.

        Args:
            state: What it gave.
            seconds: How long training had taken until then.
        """
        self._load(state)
        self._started -= seconds
        for run, last_epoch in zip(self.runs, self._stopping.state["last"].tolist(), strict=True):
            run.history.clear()
            run.best, run.error, run.last_epoch = None, None, last_epoch
        self._seen = 0
        self._look()

    def _load(self, state: Mapping[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        for i, average in enumerate(self._averages.tensors):
            average.copy_(state["averages"][str(i)])
        self._stopping.load_state_dict(state["runs"], state["best"])
        self.epoch = self._seen = int(state["runs"]["epoch"])

    def _check_logits(self, logits: Tensor) -> None:
        runs, nodes = len(self.runs), self.x.size(-2)
        if logits.dim() != 3 or logits.shape[:2] != (runs, nodes):
            raise Node2SeqError(
                f"a model output of shape {list(logits.shape if self.stacked else logits.shape[1:])}",
                f"the graph has {nodes} nodes, and each needs one row of logits",
                "Return [nodes, classes] from the model's forward",
            )
        self.task.check_outputs(logits, self.y)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model is in evaluation mode while this lasts."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def infer(model: nn.Module, call: Callable[..., Tensor], *inputs: Any) -> Tensor:
    """``call(*inputs)`` without gradients and with the model in evaluation mode, which it leaves again."""
    with evaluating(model), torch.no_grad():
        return call(*inputs)


def _parameters_and_decays(
    model: nn.Module, settings: Sequence[TrainSettings]
) -> tuple[list[nn.Parameter], list[list[float]]]:
    """What to train, and the penalty of each run on each."""
    groups = getattr(model, "parameter_groups", None)
    named: Mapping[str, Iterable[nn.Parameter]] = groups() if groups else {"all": model.parameters()}
    parameters, decays = [], []
    for name, group in named.items():
        decay = [run.decay_of_layer if name == "node2seq" else run.weight_decay for run in settings]
        for parameter in group:
            parameters.append(parameter)
            decays.append(decay)
    return parameters, decays
