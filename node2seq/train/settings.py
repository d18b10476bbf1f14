"""How a model is made and trained: its options by name, typed settings, and the recipe that holds both."""

from __future__ import annotations

import math
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from node2seq.environment import LazyModule
from node2seq.errors import Node2SeqError
from node2seq.options import build, check_rules, parse, suggestion, unknown

if TYPE_CHECKING:
    from node2seq.data import sampler
    from node2seq.nn import models
    from node2seq.nn.models import Network
else:  # what trains is checked without waiting for torch
    models = LazyModule("node2seq.nn.models")
    sampler = LazyModule("node2seq.data.sampler")

MetricName = Literal[
    "accuracy",
    "balanced-accuracy",
    "macro-f1",
    "roc-auc",
    "average-precision",
    "micro-f1",
    "r2",
    "mae",
    "rmse",
]
OptimizerName = Literal["adam", "nadam"]

# Of the full batch's learning rate, what small batches take at least.
_LEAST_OF_LR = 0.1


# They are counted in 32 bits on some devices.
_MOST_EPOCHS = 2**31 - 1


@dataclass(frozen=True)
class TrainSettings:
    """How a model is trained.

    Args:
        epochs: Full-batch steps at most.
        lr: Learning rate.
        weight_decay: L2 penalty on all parameters.
        conv_weight_decay: L2 penalty of the Node2Seq layer alone; None: the same as ``weight_decay``.
        patience: Stop after so many epochs without a better metric on validation nodes (or an equal one
            with a lower validation loss); None: never.
        optimizer: ``"adam"`` or ``"nadam"``.
        metric: What the epoch is chosen by, on validation nodes: ``"accuracy"``, ``"balanced-accuracy"``,
            ``"macro-f1"``, ``"roc-auc"`` or ``"average-precision"`` of classes; ``"r2"``, ``"mae"`` or
            ``"rmse"`` of numbers; ``"micro-f1"``, ``"macro-f1"`` or ``"accuracy"`` of several labels.
        class_weights: Weigh each class by the inverse of its share of the training nodes.
        views: Forward passes per step, each with a dropout of its own; their losses are averaged.
        consistency: Penalty on the squared distance between each view's prediction and the sharpened mean
            of all, over all nodes, labelled or not.
        sharpening: Temperature of that mean: the lower, the closer it is to a single class.
        averaging: Judge, keep and test an exponential average of the weights that forgets with this factor
            per step; 0: the weights themselves.
        label_smoothing: Share of the target that is spread evenly over all classes.
        loss: Of numbers: ``"mse"`` or ``"mae"``; None: the cross-entropy of classes, the squared error of
            numbers.
    """

    epochs: int = 200
    lr: float = 0.01
    weight_decay: float = 5e-4
    conv_weight_decay: float | None = None
    patience: int | None = None
    optimizer: OptimizerName = "adam"
    metric: MetricName = "accuracy"
    class_weights: bool = False
    views: int = 1
    consistency: float = 0.0
    sharpening: float = 0.5
    averaging: float = 0.0
    label_smoothing: float = 0.0
    loss: Literal["mse", "mae"] | None = None

    def __post_init__(self) -> None:
        more = "Give 1 or more"
        rules = [
            ("epochs", self.epochs >= 1, "training needs at least one epoch", more),
            ("epochs", self.epochs <= _MOST_EPOCHS, "it is too large", f"Give at most {_MOST_EPOCHS:,}"),
            (
                "lr",
                math.isfinite(self.lr) and self.lr > 0,
                "the learning rate must be positive and finite",
                "Try 0.01",
            ),
            (
                "patience",
                self.patience is None or self.patience >= 1,
                "training would stop before it starts",
                f"{more}, or leave it out to train all epochs",
            ),
            (
                "optimizer",
                self.optimizer in typing.get_args(OptimizerName),
                "there is no such optimizer",
                f"Choose one of {', '.join(typing.get_args(OptimizerName))}",
            ),
            (
                "metric",
                self.metric in typing.get_args(MetricName),
                "there is no such metric",
                f"Choose one of {', '.join(typing.get_args(MetricName))}",
            ),
            ("views", self.views >= 1, "a step needs one forward pass", more),
            (
                "sharpening",
                0 < self.sharpening <= 1,
                "it is the temperature of the mean prediction",
                "Give a number above 0, up to 1 for the mean as it is",
            ),
            *(
                (
                    name,
                    0 <= (getattr(self, name) or 0.0) < math.inf,
                    "a penalty cannot be negative",
                    "Give 0 or more",
                )
                for name in ("weight_decay", "conv_weight_decay", "consistency")
            ),
            *(
                (name, 0 <= getattr(self, name) < 1, "it is a share", "Give 0 or more, below 1")
                for name in ("averaging", "label_smoothing")
            ),
        ]
        check_rules(
            *((holds, f"{name}={getattr(self, name)!r}", reason, cure) for name, holds, reason, cure in rules)
        )

    @property
    def decay_of_layer(self) -> float:
        """The L2 penalty of the Node2Seq layer."""
        return self.weight_decay if self.conv_weight_decay is None else self.conv_weight_decay


@dataclass(frozen=True)
class BatchSettings:
    """How a model is trained on mini-batches instead of the full batch.

    Args:
        batch_size: Training nodes of a step.
        fanout: How many neighbours are drawn of each node, for each hop that the network reads; −1: all.
            None: all of a graph with few edges, 10 of a larger one.
        workers: Processes that draw batches beside the one that trains. They change no result.
        scale_lr: Whether the learning rate of the settings is that of the full batch, as that of a recipe is,
            and a step on a part of the training nodes takes a smaller one; see :meth:`lr`.
    """

    batch_size: int
    fanout: tuple[int, ...] | None = None
    workers: int = 0
    scale_lr: bool = False

    def __post_init__(self) -> None:
        sampler.check_batch_size(self.batch_size)
        if self.fanout is not None:
            object.__setattr__(self, "fanout", sampler.check_fanout(self.fanout))
        if self.workers < 0:
            raise Node2SeqError(
                f"workers={self.workers}", "there cannot be fewer than none", "Give 0 or more"
            )

    def lr(self, full: float, nodes: int) -> float:
        """The learning rate of a step: that of the full batch times a batch's share of the training nodes.

        The gradient of fewer nodes is noisier, and Adam takes steps of the same length whatever the noise. At
        the rate of the full batch they keep the loss up: on Squirrel, in batches of 512 of 3,120 nodes with
        all neighbours, it is 1.08 after 100 epochs, instead of 0.84 of the full batch. In proportion to the
        share, the steps of an epoch go as far as the one of the full batch, and it is 0.80. A tenth is the
        least: a rate that falls with the size of the graph would end at nothing.

        Args:
            full: The rate of the full batch.
            nodes: How many nodes are trained on.
        """
        share = min(self.batch_size / max(nodes, 1), 1.0)
        return full * max(share, _LEAST_OF_LR) if self.scale_lr else full


#: The source of whatever was searched for.
OURS = "chosen on validation accuracy, seeds 100 and up"

#: The type of each training setting.
TRAINING_TYPES: dict[str, Any] = typing.get_type_hints(TrainSettings)
_OF_TRAINING = {setting.name: setting.default for setting in fields(TrainSettings)}


@dataclass(frozen=True)
class Recipe:
    """Settings of one model for one data set.

    Args:
        options: Fields of the model's ``Options``; the others have their defaults.
        settings: How to train.
        row_normalize: Divide each node's features by their sum first.
        source: Where the values come from.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    settings: TrainSettings = field(default_factory=TrainSettings)
    row_normalize: bool = False
    source: str = ""

    def updated(self, source: str | None = None, /, **values: Any) -> Recipe:
        """The recipe with other values for some settings, each put where it belongs by its name.

        Args:
            source: Where the values come from; None: as before.
            **values: Options of the model, fields of ``TrainSettings``, or ``row_normalize``. None stands
                for the default.
        """
        options, training = dict(self.options), {}
        row_normalize = bool(values.pop("row_normalize", self.row_normalize))
        for name, value in values.items():
            if name in _OF_TRAINING:
                training[name] = _OF_TRAINING[name] if value is None else value
            elif value is None:
                options.pop(name, None)
            else:
                options[name] = value
        return Recipe(options, replace(self.settings, **training), row_normalize, source or self.source)


def recipe(
    options: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    row_normalize: bool = False,
    source: str = OURS,
) -> Recipe:
    """A recipe from plain values, as a row of the results or the outcome of a search holds them."""
    return Recipe(dict(options), TrainSettings(**settings), row_normalize, source)


def options_of(name: str) -> type:
    """The dataclass of a network's options."""
    if name not in models.MODELS:
        raise Node2SeqError(f"model {name!r}", "there is no such model", suggestion(name, models.MODELS))
    return models.MODELS[name].Options


def check_carried(name: str, carried: Iterable[str]) -> None:
    """Raises an error if a network does not take one of ``edge_weight``, ``edge_attr`` and ``edge_order``."""
    words_for = {
        "edge_weight": "edge weights",
        "edge_attr": "edge features",
        "edge_order": "orders given by edges",
    }
    for value in carried:
        if value not in models.MODELS[name].carried:
            words = words_for[value]
            others = ", ".join(
                sorted(key for key, network in models.MODELS.items() if value in network.carried)
            )
            raise Node2SeqError(
                f"{words} with the model {name}",
                "it does not read them",
                f"Leave them out, or use one of {others}",
            )


def current(name: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """What earlier versions called a network → its name and options today.

    All options were those of one network, "node2seq". Those that only "node2seq-plus" has today are dropped
    if they have their defaults, and make it that network if they have not.
    """
    options = dict(options)
    if name != "node2seq":
        return name, options
    moved = {
        field.name: field.default
        for field in fields(models.Node2SeqPlus.Options)
        if field.name in models.Node2Seq.Options.elsewhere
    }
    if any(options.get(key, default) != default for key, default in moved.items()):
        return "node2seq-plus", options
    return name, {key: value for key, value in options.items() if key not in moved}


def plainest(name: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """As :func:`current`, but a "node2seq-plus" without any option of its own is "node2seq" too.

    Two descriptions of one training are equal in this form.
    """
    return current("node2seq" if name == "node2seq-plus" else name, options)


def complete(name: str, options: Mapping[str, Any], where: str) -> tuple[str, Any]:
    """The name today, and the network's ``Options``: those given, checked, and the defaults of the others."""
    name, options = current(name, options)
    return name, build(options_of(name), options, where)


def make_network(
    name: str, in_channels: int, out_channels: int, options: Mapping[str, Any], edge_dim: int | None = None
) -> Network:
    """Make a network from its name, of today or before, and its options."""
    name, options = current(name, options)
    options_of(name)
    return models.MODELS[name](in_channels, out_channels=out_channels, edge_dim=edge_dim, **options)


def option_types(model: str) -> dict[str, Any]:
    """The type of each option of a model."""
    types = typing.get_type_hints(options_of(model))
    return {option.name: types[option.name] for option in fields(options_of(model))}


def option_defaults(model: str) -> dict[str, Any]:
    """The default of each option of a model that has one."""
    return {
        option.name: option.default for option in fields(options_of(model)) if option.default is not MISSING
    }


def parse_setting(model: str, text: str, flag: str) -> tuple[str, Any]:
    """Read ``name=value``, or ``name=[value, value]`` for several values, as given to a flag."""
    name, equals, given = (part.strip() for part in text.partition("="))
    if not equals:
        raise Node2SeqError(f"{flag} {text}", "there is no = in it", f"Write {flag} setting=value")
    types = {**TRAINING_TYPES, "row_normalize": bool}
    if name not in types:
        types = {**option_types(model), **types}
    if name not in types:
        raise unknown(f"{flag} {name}", name, types, getattr(options_of(model), "elsewhere", None))
    several = given.startswith("[") and given.endswith("]")
    parts = given[1:-1].split(",") if several else [given]
    values = [parse(part.strip(), types[name], f"{flag} {name}") for part in parts]
    return name, values if several else values[0]


def settings_of(model: str, recipe: Recipe, names: Iterable[str] | None = None) -> dict[str, Any]:
    """All that a recipe decides by name, or some of it; no default is left to be filled in later."""
    found = {name: value for name, value in option_defaults(model).items() if name != "backend"}
    found |= {**recipe.options, **asdict(recipe.settings), "row_normalize": recipe.row_normalize}
    # TOML has no word for None, and what a file leaves out would come from another recipe.
    found["conv_weight_decay"] = recipe.settings.decay_of_layer
    if found["patience"] is None:
        found["patience"] = found["epochs"]
    return found if names is None else {name: found[name] for name in names}
